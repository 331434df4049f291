// The program autokernel-judge: the judge itself, or with --host a candidate host, or with --nvrtc the CUDA compiler, or with
// --confine the way into the sandbox for another program.
#include <signal.h>

#include <cstdio>
#include <cstring>

#include "compile/nvrtc_main.h"
#include "core/channel.h"
#include "core/error.h"
#include "device/cpu/host_main.h"
#include "judge/confine_main.h"
#include "judge/server.h"

int main(int count, char** arguments) {
  if (count > 1 && std::strcmp(arguments[1], "--host") == 0) return ak::device::cpu::host_main(count, arguments);
  if (count > 1 && std::strcmp(arguments[1], "--nvrtc") == 0) return ak::compile::nvrtc_main(count, arguments);
  if (count > 1 && std::strcmp(arguments[1], "--confine") == 0) return ak::judge::confine_main(count, arguments);
  if (count > 1 && std::strcmp(arguments[1], "--version") == 0) {
    std::puts("autokernel-judge " AK_VERSION);
    return 0;
  }
  if (count > 1) {
    std::fputs("autokernel-judge is started by autokernel, with requests on descriptor 3 and replies on 4.\n", stderr);
    return 2;
  }
  ::signal(SIGPIPE, SIG_IGN);
  ak::Channel channel(ak::Descriptor(3), ak::Descriptor(4));
  try {
    ak::judge::Server(ak::executable_path()).serve(channel);
  } catch (const ak::Error& error) {
    std::fprintf(stderr, "autokernel-judge: %s\n", error.what());
    return 1;
  }
  return 0;
}
