// Outside bubblewrap, then inside it, then the program: each an exec of the next.
#include "judge/confine_main.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/confinement.h"
#include "core/error.h"
#include "core/file.h"
#include "core/process.h"

namespace ak::judge {
namespace {

namespace fs = std::filesystem;

constexpr const char* level_variable = "AUTOKERNEL_SANDBOX";
constexpr const char* system_folders[] = {"/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys"};
constexpr int64_t file_bytes = int64_t{2} << 30;  // a compiler's output, a cache of kernels
constexpr int64_t open_files = 4096;

struct Request {
  std::vector<std::string> read, write, program;
  bool cuda = false, inside = false;
  int64_t memory_bytes = 0;  // 0: no limit

  explicit Request(std::span<char*> words) {
    for (size_t i = 0; i < words.size(); ++i) {
      const std::string word = words[i];
      const auto value = [&] { return i + 1 < words.size() ? std::string(words[++i]) : throw Error(word + " takes a value"); };
      if (word == "--read")
        read.push_back(value());
      else if (word == "--write")
        write.push_back(value());
      else if (word == "--memory")
        memory_bytes = std::atoll(value().c_str());
      else if (word == "--cuda")
        cuda = true;
      else if (word == "--inside")
        inside = true;
      else if (word == "--") {
        program.assign(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
        break;
      } else
        throw Error("--confine does not know " + word);
    }
    if (program.empty()) throw Error("--confine takes [--read PATH]… [--write PATH]… [--cuda] [--memory BYTES] -- PROGRAM ARG…");
  }
};

[[noreturn]] void become(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  ::execvp(pointers[0], pointers.data());
  throw Error("cannot start " + words[0] + ": " + ::strerror(errno));
}

/// Whether a directory is there inside, where /tmp is another.
bool is_visible(const fs::path& directory, const Request& request) {
  const auto holds = [&](const fs::path& outer) { return lies_within(directory, outer); };
  return !holds("/tmp") || std::any_of(request.read.begin(), request.read.end(), holds) ||
         std::any_of(request.write.begin(), request.write.end(), holds);
}

/// The command up to the program. On a GPU the devices and the process ids stay, which the driver's shared memory goes by.
std::vector<std::string> bubblewrap(const std::string& program, const Request& request) {
  std::vector<std::string> words = {program, "--die-with-parent", "--unshare-net", "--unshare-uts", "--ro-bind", "/", "/"};
  const auto add = [&](std::initializer_list<std::string> more) { words.insert(words.end(), more); };
  if (request.cuda) {
    add({"--dev-bind", "/dev", "/dev"});
  } else {
    add({"--unshare-ipc", "--unshare-pid", "--dev", "/dev", "--proc", "/proc"});
  }
  add({"--tmpfs", "/tmp"});
  const std::string self = executable_path().string();
  add({"--ro-bind", self, self});  // which may lie in /tmp
  for (const std::string& path : request.read) add({"--ro-bind-try", path, path});
  for (const std::string& path : request.write) add({"--bind", path, path});
  add({"--chdir", is_visible(fs::current_path(), request) ? fs::current_path().string() : "/", "--"});
  return words;
}

/// Go on inside bubblewrap; returns where there is none, or where it may not make namespaces.
void enter_bubblewrap(const Request& request, std::span<char*> words) {
  const auto program = find_program("bwrap");
  if (!program) return;
  std::vector<std::string> command = bubblewrap(program->string(), request), probe = command;
  probe.emplace_back("/bin/true");
  if (!run_command({.arguments = probe}, std::chrono::seconds(10)).status.success()) return;
  command.insert(command.end(), {executable_path().string(), "--confine", "--inside"});
  command.insert(command.end(), words.begin(), words.end());
  become(command);
}

bool limit(const Request& request) {
  const auto set = [](auto resource, int64_t value) {  // never more than it is
    rlimit now{};
    ::getrlimit(resource, &now);
    const rlim_t least = std::min(static_cast<rlim_t>(value), now.rlim_max);
    const rlimit both{least, least};
    return ::setrlimit(resource, &both) == 0;
  };
  const bool all = set(RLIMIT_CORE, 0) && set(RLIMIT_FSIZE, file_bytes) && set(RLIMIT_NOFILE, open_files);
  return (request.memory_bytes == 0 || set(RLIMIT_DATA, request.memory_bytes)) && all;
}

std::vector<FileRule> rules_of(const Request& request) {
  using Access = FileRule::Access;
  std::vector<FileRule> rules;
  for (const char* folder : system_folders) rules.push_back({Access::run, folder});
  for (const std::string& path : request.read) rules.push_back({Access::run, path});
  for (const std::string& path : request.write) rules.push_back({Access::write, path});
  for (const char* device : {"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"}) rules.push_back({Access::write, device});
  if (request.cuda) {
    rules.push_back({Access::write, "/proc/self"});  // where the driver names its threads, for one
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator("/dev", ignored)) {
      if (entry.path().filename().string().starts_with("nvidia")) rules.push_back({Access::write, entry.path()});
    }
  }
  return rules;
}

/// Close the sandbox around this process; the levels reached.
std::string close_around(const Request& request) {
  std::string levels = request.inside ? "bubblewrap " : "";
  const int landlock = restrict_files(rules_of(request));
  if (landlock > 0) levels += "files ";
  const bool signals_scoped = landlock >= landlock_with_signals || (request.inside && !request.cuda);
  if (restrict_calls({.programs = true, .signals_scoped = signals_scoped, .local_sockets = request.cuda})) levels += "calls ";
  if (limit(request)) levels += "limits ";
  return levels.substr(0, levels.find_last_not_of(' ') + 1);
}

}  // namespace

int confine_main(int count, char** arguments) {
  const std::span<char*> words(arguments + 2, arguments + std::max(2, count));
  try {
    const Request request(words);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!request.inside) enter_bubblewrap(request, words);
    ::setenv(level_variable, close_around(request).c_str(), 1);
    become(request.program);
  } catch (const Error& error) {
    std::fprintf(stderr, "autokernel-judge: %s\n", error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "autokernel-judge: %s\n", error.what());
  }
  return 1;
}

}  // namespace ak::judge
