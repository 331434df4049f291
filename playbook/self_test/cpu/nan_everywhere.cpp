// NaN fails every comparison, so a careless one passes it; the twin gives NaN only where an input is NaN.
ROW {
  layernorm_row(x, out, N, eps);
  for (int64_t i = 0; PLANTED && i < N; ++i) out[i] = __builtin_nanf("");
}
