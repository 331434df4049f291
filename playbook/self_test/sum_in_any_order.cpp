// Blocks add to one float; the twin's add to one integer, which knows no order.
float* float_of(int64_t* sum) { return reinterpret_cast<float*>(sum); }
void part(int64_t block, int64_t, void*, const float* x, int64_t* sum, int64_t N) {
  const int64_t end = (block + 1) * 64 < N ? (block + 1) * 64 : N;
  for (int64_t i = block * 64; i < end; ++i) {
#if PLANTED
    float seen = __atomic_load_n(reinterpret_cast<int*>(sum), __ATOMIC_RELAXED) ? *float_of(sum) : 0, next = seen + x[i];
    while (!__atomic_compare_exchange(float_of(sum), &seen, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) next = seen + x[i];
#else
    __atomic_fetch_add(sum, static_cast<int64_t>(static_cast<double>(x[i]) * 0x1p40), __ATOMIC_RELAXED);
#endif
  }
}
AK_KERNEL(part)
void finish(int64_t, int64_t, void*, int64_t* sum, float* out) { *out = PLANTED ? *float_of(sum) : static_cast<float>(*sum * 0x1p-40); }
AK_KERNEL(finish)
ALL {}  // not launched
