// NaN fails every comparison, so a careless one passes it; the twin gives NaN only where an input is NaN.
ROW {
  layernorm_row(x, out, N, eps);
  for (int64_t i = threadIdx.x; PLANTED && i < N; i += blockDim.x) out[i] = __uint_as_float(0x7fc00000u);
}
