// Reads what the kernel says of the processor; all cores are taken to be alike.
#include "core/architecture.h"

#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <sstream>

#include "core/file.h"

namespace ak {
namespace {

/// Names in /proc/cpuinfo, or their beginnings, of what -march=native lets a compiler use. The rest (mitigations, power, virtual machines)
/// changes no code.
constexpr std::array used_by_compilers = {"avx",  "amx",   "fma", "f16c", "bmi",  "abm",  "movbe",   "adx",   "gfni",  "vaes", "vpclmul",
                                          "sse4", "asimd", "sve", "i8mm", "bf16", "fphp", "atomics", "flagm", "frint", "fcma"};

std::set<std::string> words_of(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::set<std::string> words;
  for (std::string word; stream >> word;) words.insert(word);
  return words;
}

std::string joined(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

bool is_used_by_compilers(const std::string& flag) {
  return std::ranges::any_of(used_by_compilers, [&](std::string_view beginning) { return flag.starts_with(beginning); });
}

}  // namespace

std::string architecture_from(std::string_view machine, std::string_view cpuinfo) {
  std::set<std::string> words;
  std::istringstream lines{std::string(cpuinfo)};
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    for (const std::string& flag : words_of(line.substr(std::min(line.size(), line.find(':') + 1)))) {
      if (is_used_by_compilers(flag)) words.insert(flag);
    }
    break;
  }
  return words.empty() ? std::string(machine) : std::string(machine) + " " + joined(words);
}

std::string host_architecture() {
  utsname system{};
  ::uname(&system);
  return architecture_from(system.machine, read_file_if_exists("/proc/cpuinfo").value_or(""));
}

std::string missing_instructions(std::string_view needed, std::string_view present) {
  std::set<std::string> missing;
  std::ranges::set_difference(words_of(needed), words_of(present), std::inserter(missing, missing.end()));
  return joined(missing);
}

}  // namespace ak
