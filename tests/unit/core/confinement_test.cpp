// Each property in a child of its own, which reports by its exit code.
#include "core/confinement.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>

#include "core/file.h"

namespace ak {
namespace {

using Access = FileRule::Access;

/// What `body` returns, or -1 where it dies.
int in_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool readable(const std::filesystem::path& path) { return std::ifstream(path).good(); }
bool writable(const std::filesystem::path& path) { return std::ofstream(path).good(); }

class Files : public testing::Test {
 protected:
  void SetUp() override {
    if (in_child([] { return restrict_files({}); }) == 0) GTEST_SKIP() << "this kernel has no Landlock";
    write_file(directory_.path() / "read" / "file", "text");
    write_file(directory_.path() / "other" / "file", "text");
    std::filesystem::create_directory(directory_.path() / "write");
  }
  TemporaryDirectory directory_{"confinement-"};
};

TEST_F(Files, are_read_and_written_where_a_rule_says_so) {
  const auto path = directory_.path();
  EXPECT_EQ(in_child([&] {
              const FileRule rules[] = {{Access::read, path / "read"}, {Access::write, path / "write"}, {Access::read, path / "absent"}};
              restrict_files(rules);
              return readable(path / "read" / "file") && writable(path / "write" / "file") && !writable(path / "read" / "new") &&
                     !readable(path / "other" / "file") && !writable(path / "other" / "file");
            }),
            1);
}

TEST_F(Files, are_run_only_where_a_rule_says_so) {
  const auto run = [&](Access access) {
    return in_child([&] {
      const FileRule rules[] = {{access, "/usr"}, {access, "/bin"}, {access, "/lib"}, {access, "/lib64"}};
      restrict_files(rules);
      ::execl("/bin/true", "true", nullptr);
      return errno == EACCES ? 9 : 8;
    });
  };
  EXPECT_EQ(run(Access::run), 0);
  EXPECT_EQ(run(Access::read), 9);
}

TEST(Calls, reach_no_network_and_leave_no_process_group) {
  EXPECT_EQ(in_child([] {
              if (!restrict_calls({.programs = true, .signals_scoped = true})) return 2;
              const bool socket = ::socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == EPERM;
              const bool session = ::setsid() < 0 && errno == EPERM;
              const bool group = ::setpgid(0, 0) < 0 && errno == EPERM;
              return socket && session && group ? 1 : 0;
            }),
            1);
}

TEST(Calls, listen_on_local_sockets_where_that_is_allowed_and_connect_nowhere) {
  EXPECT_EQ(in_child([] {
              if (!restrict_calls({.local_sockets = true})) return 2;
              const int local = ::socket(AF_UNIX, SOCK_STREAM, 0);
              const bool network = ::socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == EPERM;
              const sockaddr anywhere{AF_UNIX, {}};
              const bool connected = ::connect(local, &anywhere, sizeof anywhere) == 0 || errno != EPERM;
              return local >= 0 && network && !connected ? 1 : 0;
            }),
            1);
}

TEST(Calls, start_programs_only_where_that_is_allowed) {
  const auto forks = [](bool programs) {
    return in_child([&] {
      if (!restrict_calls({.programs = programs, .signals_scoped = true})) return 2;
      const pid_t pid = ::fork();
      if (pid == 0) ::_exit(0);
      return pid > 0 ? 1 : errno == EPERM ? 0 : 3;
    });
  };
  EXPECT_EQ(forks(true), 1);
  EXPECT_EQ(forks(false), 0);
}

TEST(Calls, send_no_signal_outside_where_nothing_else_prevents_it) {
  EXPECT_EQ(in_child([] {
              if (!restrict_calls({.programs = true})) return 2;
              const bool other = ::kill(::getppid(), 0) < 0 && errno == EPERM;
              return other && ::kill(::getpid(), 0) == 0 ? 1 : 0;
            }),
            1);
}

}  // namespace
}  // namespace ak
