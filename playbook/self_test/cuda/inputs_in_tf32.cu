// As TF32 does; the twin is exact in the products.
__device__ float cut(float value) { return PLANTED ? __uint_as_float((__float_as_uint(value) + 0x1000u) & 0xffffe000u) : value; }
ROW {
  for (int64_t j = threadIdx.x; j < N; j += blockDim.x) {
    float sum = 0;
    for (int64_t k = 0; k < K; ++k) sum += cut(a[k]) * cut(b[k * N + j]);
    out[j] = sum;
  }
}
