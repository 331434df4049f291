// The adversarial suite, and what the evidence says of some failures.
#include "judge/self_test.h"

#include <cstring>

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

TEST_F(PlantedFailure, leaves_one_element_out) {
  const Json reply = rig.check_body("for (int64_t i = 0; i < N; ++i) if (block != 3 || i != 5) out[i] = x[i] * weight[i];");
  expect(reply, "stale_output");
  EXPECT_EQ(reply["evidence"]["worst"]["index"], Json({3, 5}));
}

TEST_F(PlantedFailure, changes_an_input) {
  const Json reply = rig.check_body(honest_body + "if (block == 2) const_cast<float*>(x)[9] += 1;");
  expect(reply, "changed_input");
  EXPECT_EQ(reply["evidence"]["tensor"], "x");
}

TEST_F(PlantedFailure, segfaults) {
  const Json reply = rig.check_body(honest_body + "*(volatile int*)nullptr = 1;");
  expect(reply, "crashed");
  EXPECT_EQ(reply["evidence"]["signal"], 11);
}

TEST_F(PlantedFailure, exits) {
  const Json reply = rig.check_body(honest_body + "_exit(0);", "extern \"C\" void _exit(int);");
  expect(reply, "crashed");
  EXPECT_EQ(reply["evidence"]["message"], "exit code 0");
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
  forbidden("mmap(nullptr, 4096, 3, 0x122, -1, 0);", "extern \"C\" void* mmap(void*, unsigned long, int, int, int, long);", "mmap");
  forbidden("madvise(nullptr, 4096, 14);", "extern \"C\" int madvise(void*, unsigned long, int);", "madvise");
  forbidden("execv(\"/bin/true\", nullptr);", "extern \"C\" int execv(const char*, char* const*);", "execve");
}

TEST_F(PlantedFailure, files_are_closed_while_it_loads) {
  if (rig.opened()["sandbox"].dump().find("files") == std::string::npos) GTEST_SKIP() << "this kernel has no Landlock";
  const std::string globals =
      "extern \"C\" int open(const char*, int, ...);\nint opened;\n__attribute__((constructor)) void look() { opened = "
      "open(\"/etc/passwd\", 0); }";
  expect(rig.check_body(honest_body + "if (opened >= 0) out[0] += 1;", globals), "pass");
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

TEST(Fixture, that_does_not_belong_to_its_case_is_nobodys_fault_but_its_own) {
  Rig rig{2.0};
  const auto refused = [&](const char* file, const std::string& key, const std::string& value) {
    Json request = rig.arguments(Rig::workload_case());
    request["candidate"] = rig.candidate(scale_source(honest_body), Rig::workload_case());
    const std::string path = request.at(file);
    std::string bytes = read_file(path);
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    Json header = Json::parse(bytes.substr(8, length));
    header["__metadata__"][key] = value;
    const std::string text = header.dump(), data = bytes.substr(8 + length);
    length = text.size();
    write_file(path, std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + data);
    for (const char* verb : {"check", "null_candidates"}) EXPECT_THROW(rig.server().answer(verb, request), Error) << key << " " << value;
  };
  for (const char* offset : {"many", "-4", "4611686018427387904", "99999999999999999999999", "1"}) refused("inputs", "x.offset", offset);
  for (const char* shape : {"[32, 768]", "[64]", "[-64, -768]", "[4611686018427387904, 4]", "7"}) {
    refused("inputs", "x.shape", shape);
    refused("expected", "out.shape", shape);
  }
  for (const char* strides : {"[768]", "[-768, 1]", "[4611686018427387904, 1]", "[769, 1]"}) refused("inputs", "x.strides", strides);
  for (const char* strides : {"[768]", "[-768, 1]", "[4611686018427387904, 1]"}) refused("expected", "out.strides", strides);
  for (const char* dtype : {"float64", "int32", "none"}) refused("expected", "out.dtype", dtype);
}

TEST(SelfTest, every_planted_candidate_is_caught_and_every_honest_twin_passes) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer in the host has memory and system calls of its own";
#endif
  TemporaryDirectory cache("autokernel-test-");
  const auto compiler = compile::CppCompiler::find(AK_SOURCE_DIR "/kernels/include", cache.path());
  SelfTest suite(AK_SOURCE_DIR "/playbook/self_test", judge_executable(), compiler, {{"device", "cpu"}});
  if (suite.opened()["sandbox"].dump().find("calls") == std::string::npos) GTEST_SKIP() << "this kernel has no seccomp";
  suite.compile_ahead(2);
  EXPECT_GE(suite.pairs().size(), 45u);
  for (const Pair& pair : suite.pairs()) {
    const PairResult result = suite.run(pair);
    EXPECT_TRUE(result.caught && result.honest_passed) << to_json(pair, result).dump(1);
  }
}

}  // namespace
}  // namespace ak::judge::test
