// The bits of floats are ordered like integers only where they are positive; the twin turns the negative ones round.
__device__ unsigned key_of(float value) {
  const unsigned bits = __float_as_uint(value);
  if (value != value) return 0xffffffffu;
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ float value_of(unsigned key) {
  if (key == 0xffffffffu) return __uint_as_float(0x7fc00000u);
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}
ROW {
  __shared__ int bits;
  __shared__ unsigned key;
  if (threadIdx.x == 0) {
    bits = __float_as_int(-ak::infinity());
    key = 0;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < N; i += blockDim.x) {
    if (PLANTED) {
      atomicMax(&bits, __float_as_int(x[i]));
    } else {
      atomicMax(&key, key_of(x[i]));
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) *out = PLANTED ? __int_as_float(bits) : value_of(key);
}
