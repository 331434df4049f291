// The process that holds NVRTC: a kernel that breaks the compiler breaks nothing else.
#pragma once

namespace ak::compile {

/// `--nvrtc LIBRARY` prints the version; `--nvrtc LIBRARY ARCH OUT INCLUDE… -- OPTION… FILE` compiles FILE to the cubin OUT, both in the
/// working directory, messages to standard error. Once LIBRARY is open it reads no files but those of the INCLUDEs, writes none but in the
/// working directory, and has no network. Returns the exit code.
int nvrtc_main(int count, char** arguments);

}  // namespace ak::compile
