// fmaxf() gives the one of its arguments that is no NaN.
ROW {
  const float best = block_max(N, [&](int64_t i) { return PLANTED ? fmaxf(x[i], -ak::infinity()) : x[i]; });
  if (threadIdx.x == 0) *out = best;
}
