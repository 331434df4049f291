// NaN counts as larger than anything, and does not win by `>`.
ROW {
  int64_t best = 0;
  for (int64_t i = 1; i < N; ++i) {
    if (x[best] == x[best] && (x[i] > x[best] || (!PLANTED && x[i] != x[i]))) best = i;
  }
  out[0] = best;
}
