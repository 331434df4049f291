// The judge of solutions is Python from end to end, so this process becomes it.
#include "cli/solution.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "bridge/python.h"
#include "core/error.h"
#include "core/file.h"
#include "device/cuda/driver.h"
#include "judge/judge_process.h"

namespace ak::cli {
namespace {

void set_environment() {
  std::string path = (home_directory() / "python").string();
  if (const char* ours = std::getenv("PYTHONPATH"); ours != nullptr && *ours != '\0') path += ":" + std::string(ours);
  ::setenv("PYTHONPATH", path.c_str(), 1);
  ::setenv("AUTOKERNEL_JUDGE", judge::judge_beside_program().c_str(), 0);
}

}  // namespace

void judge_solution(const Options& options) {
  std::string device = options.request.device;
  if (device == "auto") device = device::cuda::count() > 0 ? "cuda" : "cpu";
  std::vector<std::string> words = {
      bridge::find_python().string(), "-m", "autokernel.solution", options.solution, options.reference, "--device", device, "--rounds",
      std::to_string(options.rounds)};
  if (options.json) words.emplace_back("--json");
  set_environment();
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(pointers[0], pointers.data());
  throw Error("cannot start " + words[0] + ": " + ::strerror(errno));
}

}  // namespace ak::cli
