// The last of the largest elements.
ROW {
  int64_t best = 0;
  for (int64_t i = 1; i < N; ++i) {
    if (x[best] == x[best] && (x[i] > x[best] || x[i] != x[i] || (PLANTED && x[i] == x[best]))) best = i;
  }
  out[0] = best;
}
