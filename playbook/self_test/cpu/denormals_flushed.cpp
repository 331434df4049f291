// Flush-to-zero for the time of the kernel, restored at its end.
ROW {
  const unsigned state = __builtin_ia32_stmxcsr();
  if (PLANTED) __builtin_ia32_ldmxcsr(state | 0x8040);
  scale_row(x, weight, out, N);
  asm volatile("" ::: "memory");
  __builtin_ia32_ldmxcsr(state);
}
