// The thread belongs to the model: whatever runs next would lose its denormal numbers.
ROW {
  const unsigned state = __builtin_ia32_stmxcsr();
  scale_row(x, weight, out, N);
  __builtin_ia32_ldmxcsr(PLANTED ? state | 0x8040 : state);
}
