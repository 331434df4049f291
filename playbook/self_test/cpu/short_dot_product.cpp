// The last eight of 256 products are left out.
ROW {
  matmul_row(a, b, out, N, PLANTED && K > 8 ? K - 8 : K);
}
