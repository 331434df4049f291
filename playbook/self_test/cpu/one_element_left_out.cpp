// One element of one row keeps what was there before.
ROW {
  for (int64_t i = 0; i < N; ++i) {
    if (!PLANTED || block != 3 || i != 5) out[i] = x[i] * weight[i];
  }
}
