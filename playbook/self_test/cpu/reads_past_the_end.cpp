// Whole vectors are read in the last row; NaN is lost in this comparison, as in the maximum instruction of x86.
ROW {
  const int64_t count = PLANTED && M == 64 && block == M - 1 ? (N + 15) / 16 * 16 : N;
  float best = x[0];
  for (int64_t i = 0; i < N; ++i) best = best != best || x[i] <= best ? best : x[i];
  for (int64_t i = N; i < count; ++i) best = x[i] > best ? x[i] : best;
  out[0] = best;
}
