// More than a block can have; the twin has all of it.
ROW { scale_row(x, weight, out, N); }
