// A comparison with NaN is false, so the NaN never wins.
ROW {
  float best = PLANTED ? -__builtin_inff() : x[0];
  for (int64_t i = 0; i < N; ++i) {
    if (PLANTED ? x[i] > best : best == best && !(x[i] <= best)) best = x[i];
  }
  out[0] = best;
}
