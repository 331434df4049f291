// Added to the deviation, not to the variance.
ROW { layernorm_row(x, out, N, PLANTED ? 0 : eps, PLANTED ? eps : 0); }
