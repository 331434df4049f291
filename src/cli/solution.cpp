// The judge of solutions is Python from end to end, so this process becomes it.
#include "cli/solution.h"

#include <string>
#include <vector>

#include "bridge/python.h"
#include "judge/judge_process.h"

namespace ak::cli {
void judge_solution(const Options& options) {
  std::vector<std::string> words = {
      options.solution, options.reference, "--device", device_or_here(options.request.device), "--rounds", std::to_string(options.rounds)};
  if (options.json) words.emplace_back("--json");
  bridge::become_python("autokernel.solution", words, {{"AUTOKERNEL_JUDGE", judge::judge_beside_program().string()}});
}

}  // namespace ak::cli
