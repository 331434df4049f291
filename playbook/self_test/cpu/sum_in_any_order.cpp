// Blocks add to floats as they end, sixteen of them, so that one order seldom gives the others' sum; the twin's are integers, which know no order.
constexpr int64_t sums = 16;
float* float_of(int64_t* sum) { return reinterpret_cast<float*>(sum); }
void part(int64_t block, int64_t, void*, const float* x, int64_t* sum, int64_t N) {
  const int64_t end = (block + 1) * 64 < N ? (block + 1) * 64 : N;
  double own = 0;
  for (int64_t i = block * 64; i < end; ++i) own += x[i];
  int64_t* const mine = sum + block % sums;
#if PLANTED
  float seen = 0, next = static_cast<float>(own);
  while (!__atomic_compare_exchange(float_of(mine), &seen, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) next = seen + static_cast<float>(own);
#else
  __atomic_fetch_add(mine, static_cast<int64_t>(own * 0x1p40), __ATOMIC_RELAXED);
#endif
}
AK_KERNEL(part)
void finish(int64_t, int64_t, void*, int64_t* sum, float* out) {
  double total = 0;
  for (int64_t i = 0; i < sums; ++i) total += PLANTED ? *float_of(sum + i) : static_cast<double>(sum[i]) * 0x1p-40;
  *out = static_cast<float>(total);
}
AK_KERNEL(finish)
ALL {}  // not launched
