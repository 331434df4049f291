// As TF32 does; the twin is exact in the products.
inline float cut(float value) {
  return PLANTED ? __builtin_bit_cast(float, (__builtin_bit_cast(uint32_t, value) + 0x1000u) & 0xffffe000u) : value;
}
ROW {
  for (int64_t j = 0; j < N; ++j) {
    float sum = 0;
    for (int64_t k = 0; k < K; ++k) sum += cut(a[k]) * cut(b[k * N + j]);
    out[j] = sum;
  }
}
