// Rounding towards zero for the last row, and for whoever comes next.
ROW {
  const unsigned state = __builtin_ia32_stmxcsr();
  scale_row(x, weight, out, N);
  if (block == M - 1) __builtin_ia32_ldmxcsr(PLANTED ? state | 0x6000 : state);
}
