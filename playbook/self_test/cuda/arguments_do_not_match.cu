// The plan gives one argument too many.
ROW { scale_row(x, weight, out, N); }
