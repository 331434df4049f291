// The way into the sandbox for programs that are not ours: Python with a solution in it.
#pragma once

namespace ak::judge {

/// `--confine [--read PATH]… [--write PATH]… [--cuda] [--memory BYTES] -- PROGRAM ARG…` runs the program in bubblewrap where that works,
/// and in any case under Landlock, seccomp and limits: it reads the system's programs and libraries and the PATHs of --read, writes below
/// those of
/// --write, and has no network. AUTOKERNEL_SANDBOX tells it what was reached. Does not return where the program starts, else the exit code.
int confine_main(int count, char** arguments);

}  // namespace ak::judge
