// More than a kernel can have without asking.
ROW {
  __shared__ float rows[PLANTED ? 65536 : 4096];
  for (int64_t i = threadIdx.x; i < N; i += blockDim.x) {
    rows[i % 4096] = x[i];
    out[i] = rows[i % 4096] * weight[i];
  }
}
