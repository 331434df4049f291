// Blocks add to one float; the twin's add to one integer, which knows no order.
float* float_of(int64_t* sum) { return reinterpret_cast<float*>(sum); }
void part(int64_t block, int64_t, void*, const float* x, int64_t* sum, int64_t N) {
  const int64_t end = (block + 1) * 64 < N ? (block + 1) * 64 : N;
  double own = 0;
  for (int64_t i = block * 64; i < end; ++i) own += x[i];
#if PLANTED
  float seen = 0, next = static_cast<float>(own);
  while (!__atomic_compare_exchange(float_of(sum), &seen, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) next = seen + static_cast<float>(own);
#else
  __atomic_fetch_add(sum, static_cast<int64_t>(own * 0x1p40), __ATOMIC_RELAXED);
#endif
}
AK_KERNEL(part)
void finish(int64_t, int64_t, void*, int64_t* sum, float* out) { *out = PLANTED ? *float_of(sum) : static_cast<float>(*sum * 0x1p-40); }
AK_KERNEL(finish)
ALL {}  // not launched
