// The other usual value.
ROW { layernorm_row(x, out, N, PLANTED ? 1e-6f : eps); }
