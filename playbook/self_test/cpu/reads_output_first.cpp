// An accumulating kernel that trusts its output to hold zeros; the twin reads back only what it has written.
ROW {
  for (int64_t i = 0; i < N; ++i) {
    if (!PLANTED) out[i] = 0;
    out[i] = out[i] + x[i] * weight[i];
  }
}
