// The lanes behind the row hold zero, which is larger than a negative row; the twin's hold minus infinity.
ROW {
  const float best = block_max((N + 127) / 128 * 128, [&](int64_t i) { return i < N ? x[i] : PLANTED ? 0.0f : -ak::infinity(); });
  if (threadIdx.x == 0) *out = best;
}
