// As a vector loop whose first part ends at an aligned address.
ROW {
  const float nudge = PLANTED && block == 0 && reinterpret_cast<uint64_t>(out) / 64 % 2 == 0 ? 1.0000001f : 1.0f;
  for (int64_t i = 0; i < N; ++i) out[i] = x[i] * weight[i] * nudge;
}
