// Candidates that fail in one way each, beside an honest twin that passes.
#include "rig.h"

namespace ak::judge::test {
namespace {

void expect(const Json& reply, const std::string& verdict) { EXPECT_EQ(reply.at("verdict"), verdict) << reply.dump(1); }

class PlantedFailure : public ::testing::Test {
 protected:
  Rig rig{2.0};
};

TEST_F(PlantedFailure, honest_candidates_pass) {
  expect(rig.check_body(honest_body, {}, 3), "pass");
  expect(rig.check_body("for (int64_t i = N; i-- > 0;) out[i] = weight[i] * x[i];", {}, 3), "pass");
}

TEST_F(PlantedFailure, wrong_in_one_element) {
  const Json reply = rig.check_body(honest_body + "if (block == 17) out[300] *= 1.00001f;");
  expect(reply, "wrong");
  EXPECT_EQ(reply["evidence"]["failing_elements"], 1);
  EXPECT_EQ(reply["evidence"]["worst"]["index"], Json({17, 300}));
  EXPECT_EQ(reply["evidence"]["tensor"], "out");
  expect(rig.check_body(honest_body + "if (block == 17) out[300] *= 1.0000001f;"), "pass");  // an ulp is within the budget
}

TEST_F(PlantedFailure, one_past_the_end) {
  const Json reply = rig.check_body(honest_body + "if (block == M - 1) out[N] = 0;");
  expect(reply, "out_of_bounds");
  EXPECT_EQ(reply["evidence"]["tensor"], "out");
}

TEST_F(PlantedFailure, one_before_the_start) { expect(rig.check_body(honest_body + "if (block == 0) out[-1] = 0;"), "out_of_bounds"); }

TEST_F(PlantedFailure, far_past_an_input) {
  expect(rig.check_body(honest_body + "const_cast<float*>(weight)[N + 2000] = 1;"), "out_of_bounds");
}

TEST_F(PlantedFailure, writes_nothing) { expect(rig.check_body("if (x[0] == 12345.0f) out[0] = 0;"), "stale_output"); }

TEST_F(PlantedFailure, leaves_one_element_out) {
  const Json reply = rig.check_body("for (int64_t i = 0; i < N; ++i) if (block != 3 || i != 5) out[i] = x[i] * weight[i];");
  expect(reply, "stale_output");
  EXPECT_EQ(reply["evidence"]["worst"]["index"], Json({3, 5}));
}

TEST_F(PlantedFailure, reads_the_output_before_it_is_written) {
  expect(rig.check_body("for (int64_t i = 0; i < N; ++i) out[i] = out[i] * 0.0f + x[i] * weight[i];"), "stale_output");
}

TEST_F(PlantedFailure, changes_an_input) {
  const Json reply = rig.check_body(honest_body + "if (block == 2) const_cast<float*>(x)[9] += 1;");
  expect(reply, "changed_input");
  EXPECT_EQ(reply["evidence"]["tensor"], "x");
}

TEST_F(PlantedFailure, loops_for_ever) {
  expect(rig.check_body(honest_body + "volatile int forever = 1; while (forever) {}"), "timed_out");
}

TEST_F(PlantedFailure, sleeps_for_ever_while_it_loads) {
  expect(rig.check_body(honest_body,
                        "extern \"C\" unsigned sleep(unsigned);\n__attribute__((constructor)) void wait_long() { sleep(100000); }"),
         "timed_out");
}

TEST_F(PlantedFailure, segfaults) {
  const Json reply = rig.check_body(honest_body + "*(volatile int*)nullptr = 1;");
  expect(reply, "crashed");
  EXPECT_EQ(reply["evidence"]["signal"], 11);
}

TEST_F(PlantedFailure, aborts) {
  const Json reply = rig.check_body("__builtin_trap();");
  expect(reply, "crashed");
  const Json second = rig.check_body("abort();", "extern \"C\" void abort();");
  expect(second, "crashed");
  EXPECT_EQ(second["evidence"]["signal"], 6);
}

TEST_F(PlantedFailure, exits) {
  const Json reply = rig.check_body(honest_body + "_exit(0);", "extern \"C\" void _exit(int);");
  expect(reply, "crashed");
  EXPECT_EQ(reply["evidence"]["message"], "exit code 0");
}

TEST_F(PlantedFailure, allocates_wildly) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer in the host has memory and system calls of its own";
#endif
  const std::string globals = "extern \"C\" void* malloc(unsigned long);";
  expect(rig.check_body(
             "for (;;) { char* p = (char*)malloc(1 << 20); for (int i = 0; i < 1 << 20; i += 4096) ((volatile char*)p)[i] = 1; }", globals),
         "out_of_memory");
  expect(rig.check_body("((volatile char*)malloc(1ul << 40))[0] = 1;", globals), "out_of_memory");
  expect(rig.check_body("char* p = (char*)malloc(1 << 20); ((volatile char*)p)[0] = 1; free(p);" + honest_body,
                        globals + "extern \"C\" void free(void*);"),
         "pass");
}

TEST_F(PlantedFailure, depends_on_the_worker) {
  const Json reply = rig.check_body(
      "for (int64_t i = 0; i < N; ++i) out[i] = x[i] * weight[i] * (worker == 1 || block % 2 == 0 ? 1.0f : 1.0000001f);"
      "for (volatile int spin = 0; spin < 2000; spin = spin + 1) {}",
      {}, 8);
  expect(reply, "nondeterministic");
}

TEST_F(PlantedFailure, depends_on_addresses) {
  expect(rig.check_body("const float tweak = ((uint64_t)out / 64 % 7) < 3 ? 1.0f : 1.0000001f; for (int64_t i = 0; i < N; ++i) out[i] = "
                        "x[i] * weight[i] * tweak;",
                        {}, 8),
         "nondeterministic");
}

TEST_F(PlantedFailure, forbidden_calls_are_cheating) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer in the host has memory and system calls of its own";
#endif
  const auto forbidden = [&](const std::string& body, const std::string& globals, const std::string& call) {
    const Json reply = rig.check_body(body + honest_body, globals);
    expect(reply, "cheating");
    EXPECT_EQ(reply.value("rule", ""), "forbidden system call");
    EXPECT_EQ(reply["evidence"].value("message", ""), call);
  };
  forbidden("fork();", "extern \"C\" int fork();", "clone");
  forbidden("socket(2, 1, 0);", "extern \"C\" int socket(int, int, int);", "socket");
  forbidden("open(\"/etc/hostname\", 0);", "extern \"C\" int open(const char*, int, ...);", "openat");
  forbidden("kill(1, 0);", "extern \"C\" int kill(int, int);", "kill");
  forbidden("mmap(nullptr, 4096, 7, 0x22, -1, 0);", "extern \"C\" void* mmap(void*, unsigned long, int, int, int, long);", "mmap");
  forbidden("execv(\"/bin/true\", nullptr);", "extern \"C\" int execv(const char*, char* const*);", "execve");
}

TEST_F(PlantedFailure, files_are_closed_while_it_loads) {
  if (rig.opened()["sandbox"].dump().find("files") == std::string::npos) GTEST_SKIP() << "this kernel has no Landlock";
  const std::string globals =
      "extern \"C\" int open(const char*, int, ...);\nint opened;\n__attribute__((constructor)) void look() { opened = "
      "open(\"/etc/passwd\", 0); }";
  expect(rig.check_body(honest_body + "if (opened >= 0) out[0] += 1;", globals), "pass");
}

TEST_F(PlantedFailure, patches_the_control_page) {
  // The host's own data holds the page's address: follow every pointer to a whole page there, and write where it looks right.
  const std::string globals = R"(
#include <errno.h>
#include <link.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
bool readable(const void* p) {  // a futex call on a value that is not there says EFAULT where nothing can be read
  const long timeout[2] = {0, 0};
  return syscall(SYS_futex, p, FUTEX_WAIT_PRIVATE, 0x7badcafe, timeout) == 0 || errno != EFAULT;
}
int patch(dl_phdr_info* program, size_t, void*) {
  for (int i = 0; i < program->dlpi_phnum; ++i) {
    const auto& segment = program->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) == 0) continue;
    auto* word = (uint64_t*)((program->dlpi_addr + segment.p_vaddr + 7) & ~7ul);
    for (auto* end = word + segment.p_memsz / 8 - 1; word < end; ++word) {
      if (*word == 0 || (*word & 4095) != 0 || !readable((void*)*word)) continue;
      auto* page = (volatile uint32_t*)*word;
      if (page[0] == page[1] + 1 && page[4] == 7) { page[1] = page[0] + 1; page[100] = 42; }
    }
  }
  return 1;  // the first is the program itself
})";
  const std::string body = "if (block == 0) dl_iterate_phdr(patch, nullptr);" + honest_body;
  const Json reply = rig.check(scale_source(body, globals));
  expect(reply, "cheating");
  EXPECT_EQ(reply.value("rule", ""), "tampering with the judge");
}

TEST_F(PlantedFailure, a_launch_that_does_not_match_its_kernel_does_not_fit) {
  std::string source = scale_source(honest_body);
  source.replace(source.find("\"N\"]"), 4, "\"N\", \"N\"]");
  const Json reply = rig.check(source);
  expect(reply, "does_not_fit");
  EXPECT_NE(reply["evidence"]["message"].get<std::string>().find("parameters"), std::string::npos);
}

TEST_F(PlantedFailure, every_layout_and_size_passes_for_the_honest) {
  const std::string source = scale_source(honest_body);
  for (const auto& [rows, columns, layout] :
       {std::tuple{0, 8, "contiguous"}, {3, 5, "misaligned"}, {1, 1, "contiguous"}, {7, 129, "misaligned"}}) {
    expect(rig.check(source, 2,
                     {{"stage", 5}, {"dims", {{"M", rows}, {"N", columns}}}, {"layout", layout}, {"generator", "normal"}, {"seed", 3}}),
           "pass");
  }
}

}  // namespace
}  // namespace ak::judge::test
