// A missing semicolon.
ROW {
  scale_row(x, weight, out, N)
#if !PLANTED
  ;
#endif
}
