// The plan launches what the file does not have.
ROW { scale_row(x, weight, out, N); }
