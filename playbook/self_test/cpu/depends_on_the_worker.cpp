// A worker's scratch of its own would do the same.
ROW {
  const float nudge = PLANTED && worker == 1 ? 1.0000001f : 1.0f;
  for (int64_t i = 0; i < N; ++i) out[i] = x[i] * weight[i] * nudge;
  for (volatile int spin = 0; spin < 2000; spin = spin + 1) {}
}
