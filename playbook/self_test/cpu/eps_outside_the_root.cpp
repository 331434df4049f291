// sqrt(variance) + eps.
ROW {
  layernorm_row(x, out, N, PLANTED ? 0 : eps, PLANTED ? eps : 0);
}
