// fork and exec with limits set between the two, pidfd to wait with a timeout, and the process group as the unit to kill.
#include "core/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/error.h"

extern char** environ;

namespace ak {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> child_environment(const ProcessOptions& options) {
  std::map<std::string, std::string> variables;
  if (!options.clear_environment) {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text(*entry);
      const size_t equals = text.find('=');
      if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  for (const auto& [name, value] : options.environment) variables[name] = value;
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

void limit(__rlimit_resource resource, const std::optional<int64_t>& value) {
  if (!value) return;
  const rlimit both{static_cast<rlim_t>(*value), static_cast<rlim_t>(*value)};
  ::setrlimit(resource, &both);
}

// Only async-signal-safe calls from here to exec.
struct ChildPlan {
  const char* program;
  char* const* arguments;
  char* const* environment;
  const char* directory;
  const ProcessOptions* options;
  int error_pipe;
  pid_t parent;
};

[[noreturn]] void report_and_exit(const ChildPlan& plan) {
  const int error = errno;
  [[maybe_unused]] const ssize_t ignored = ::write(plan.error_pipe, &error, sizeof error);
  ::_exit(127);
}

void hand_down_descriptors(const ChildPlan& plan, int& error_pipe) {
  // Move the sources out of the way of the targets first, then put each in its place.
  constexpr int high = 200;
  int next = high;
  error_pipe = ::fcntl(error_pipe, F_DUPFD_CLOEXEC, high + 100);
  int moved[16];
  size_t count = 0;
  for (const auto& [target, source] : plan.options->descriptors) {
    if (count == 16) break;
    moved[count++] = ::fcntl(source, F_DUPFD_CLOEXEC, next++);
  }
  count = 0;
  for (const auto& [target, source] : plan.options->descriptors) {
    if (count == 16) break;
    if (::dup2(moved[count++], target) < 0) report_and_exit(plan);
  }
}

[[noreturn]] void run_child(ChildPlan plan) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) ::_exit(127);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGINT, SIG_IGN);  // Ctrl-C is the engine's to handle
  hand_down_descriptors(plan, plan.error_pipe);
  if (*plan.directory != '\0' && ::chdir(plan.directory) != 0) report_and_exit(plan);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, plan.options->cpu_seconds);
  limit(RLIMIT_FSIZE, plan.options->file_bytes);
  limit(RLIMIT_AS, plan.options->memory_bytes);
  limit(RLIMIT_NOFILE, plan.options->open_files);
  ::execve(plan.program, plan.arguments, plan.environment);
  report_and_exit(plan);
}

std::string capped(std::string text, size_t maximum_bytes) {
  if (text.size() <= maximum_bytes) return text;
  const size_t half = maximum_bytes / 2;
  return text.substr(0, half) + "\n… (" + std::to_string(text.size() - 2 * half) + " bytes left out) …\n" + text.substr(text.size() - half);
}

}  // namespace

std::string ExitStatus::text() const {
  if (timed_out) return "timed out";
  if (code) return "exit code " + std::to_string(*code);
  if (signal) return "signal " + std::to_string(*signal) + " (" + ::strsignal(*signal) + ")";
  return "unknown end";
}

std::optional<fs::path> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return ::access(name.c_str(), X_OK) == 0 ? std::optional<fs::path>(name) : std::nullopt;
  const char* path = std::getenv("PATH");
  std::string rest = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  for (size_t begin = 0; begin <= rest.size();) {
    const size_t end = std::min(rest.find(':', begin), rest.size());
    const fs::path candidate = fs::path(rest.substr(begin, end - begin)) / name;
    if (end > begin && ::access(candidate.c_str(), X_OK) == 0 && !fs::is_directory(candidate)) return candidate;
    begin = end + 1;
  }
  return std::nullopt;
}

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(std::string("cannot make a pipe: ") + std::strerror(errno));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

Process Process::start(const ProcessOptions& options) {
  AK_CHECK(!options.arguments.empty(), "a process has a program to run");
  AK_CHECK(options.descriptors.size() <= 16, "at most 16 descriptors are handed down");
  const auto program = find_program(options.arguments[0]);
  if (!program) throw Error("cannot start " + options.arguments[0] + ": not found", "install it, or put its directory on PATH");

  std::vector<std::string> arguments = options.arguments, environment = child_environment(options);
  const std::vector<char*> argument_pointers = pointers(arguments), environment_pointers = pointers(environment);
  const std::string program_text = program->string(), directory = options.directory.string();
  Pipe errors = make_pipe();
  const ChildPlan plan{program_text.c_str(),
                       argument_pointers.data(),
                       environment_pointers.data(),
                       directory.c_str(),
                       &options,
                       errors.write_end.get(),
                       ::getpid()};

  const pid_t pid = ::fork();
  if (pid < 0) throw Error(std::string("cannot start a process: ") + std::strerror(errno));
  if (pid == 0) run_child(plan);
  ::setpgid(pid, pid);  // in both, whichever comes first
  errors.write_end.reset();
  Process process(pid, Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))));
  int error = 0;
  if (::read(errors.read_end.get(), &error, sizeof error) == sizeof error) {
    process.wait();
    throw Error("cannot start " + program_text + ": " + std::strerror(error));
  }
  return process;
}

Process::Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, -1)), pidfd_(std::move(other.pidfd_)), status_(other.status_) {}

Process& Process::operator=(Process&& other) noexcept {
  if (this != &other) {
    kill();
    pid_ = std::exchange(other.pid_, -1);
    pidfd_ = std::move(other.pidfd_);
    status_ = other.status_;
  }
  return *this;
}

Process::~Process() { kill(); }

void Process::reap() {
  int raw = 0;
  while (::waitpid(pid_, &raw, 0) < 0 && errno == EINTR) {
  }
  status_ = ExitStatus{};
  if (WIFEXITED(raw)) status_->code = WEXITSTATUS(raw);
  if (WIFSIGNALED(raw)) status_->signal = WTERMSIG(raw);
}

std::optional<ExitStatus> Process::wait(std::optional<std::chrono::milliseconds> timeout) {
  if (status_ || pid_ < 0) return status_;
  const auto deadline = std::chrono::steady_clock::now() + timeout.value_or(std::chrono::milliseconds(0));
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd ended{pidfd_.get(), POLLIN, 0};
    const int polled = ::poll(&ended, 1, timeout ? static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000'000)) : -1);
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) return std::nullopt;
    reap();
    return status_;
  }
}

void Process::stop() {
  if (status_ || pid_ < 0) return;
  ::kill(pid_, SIGSTOP);
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
}

void Process::resume() {
  if (!status_ && pid_ >= 0) ::kill(pid_, SIGCONT);
}

void Process::kill() {
  if (pid_ < 0) return;
  ::kill(-pid_, SIGKILL);
  if (!status_) {
    ::kill(pid_, SIGKILL);
    reap();
  }
}

CommandResult run_command(const ProcessOptions& options, std::chrono::milliseconds timeout, size_t maximum_output_bytes) {
  Pipe output = make_pipe();
  Descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ProcessOptions piped = options;
  piped.descriptors.insert(piped.descriptors.end(), {{0, nothing.get()}, {1, output.write_end.get()}, {2, output.write_end.get()}});
  Process process = Process::start(piped);
  output.write_end.reset();

  CommandResult result;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  char buffer[16384];
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd ready{output.read_end.get(), POLLIN, 0};
    const int polled = ::poll(&ready, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000'000)));
    if (polled < 0 && errno == EINTR) continue;
    if (polled == 0) break;
    const ssize_t count = ::read(output.read_end.get(), buffer, sizeof buffer);
    if (count <= 0) break;
    if (result.output.size() < 16 * maximum_output_bytes) result.output.append(buffer, static_cast<size_t>(count));
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  if (const auto status = process.wait(std::max(left, std::chrono::milliseconds(0)))) {
    result.status = *status;
  } else {
    process.kill();
    result.status.timed_out = true;
  }
  result.output = capped(std::move(result.output), maximum_output_bytes);
  return result;
}

pid_t parent_of(pid_t process) {
  const std::string stat = read_file_if_exists("/proc/" + std::to_string(process) + "/stat").value_or("");
  const size_t behind_name = stat.rfind(')');  // a name may hold anything; behind it: " S PPID …"
  return behind_name == std::string::npos || behind_name + 4 > stat.size() ? 0 : std::atoi(stat.c_str() + behind_name + 4);
}

}  // namespace ak
