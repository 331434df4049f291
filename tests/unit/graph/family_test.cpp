// family.toml: what it gives, and the message for each mistake.
#include "graph/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "builders.h"

namespace ak::graph {
namespace {

using ::testing::HasSubstr;

const char* const text = R"toml(name    = "rmsnorm"
summary = "Root-mean-square normalisation."
dtypes  = ["float32", "bfloat16"]
flops   = "4*M*N"
bytes   = "(2*M*N + HAS_WEIGHT*N) * sizeof(T)"
[[tensor]]
name = "x"
role = "data"
shape = ["M", "N"]
hides = true
factors = "HAS_WEIGHT == 0"
[[tensor]]
name = "weight"
role = "weight"
shape = ["N"]
optional = "HAS_WEIGHT"
[[tensor]]
name = "rows"
role = "index"
shape = ["M"]
range = "N"
ignored = "offset"
[[tensor]]
name = "out"
role = "output"
shape = ["M", "N"]
dtype = "float32"
[scalars]
eps = 1e-6
offset = 3
[options]
HAS_WEIGHT = 1
[[spelling]]
function = "plain"
labels   = { x = ["*M", "N"], out = ["*M", "N"] }
scalars  = ["eps"]
options  = { HAS_WEIGHT = 0 }
sizes    = { N = [8, 16] }
[stages]
sweep = [{ M = 1, N = 768 }]
edges = [{ M = 5, N = 129, layout = "strided" }]
stability = ["large"]
[tolerance]
k = 12.5
)toml";

std::string replaced(std::string from, const std::string& to) {
  std::string changed = text;
  const size_t at = changed.find(from);
  AK_CHECK(at != std::string::npos, "the test's text has what it replaces");
  return changed.replace(at, from.size(), to);
}

TEST(Family, HoldsWhatTheFileSays) {
  const Family family = parse_family(text, "f.toml");
  EXPECT_EQ(family.name, "rmsnorm");
  EXPECT_EQ(family.dtypes, (std::vector<Dtype>{Dtype::float32, Dtype::bfloat16}));
  ASSERT_EQ(family.tensors.size(), 4u);
  EXPECT_EQ(family.tensors[2].dtype, Dtype::int64);  // of an index, unless said
  EXPECT_EQ(family.tensors[2].range, "N");
  EXPECT_EQ(family.tensors[2].ignored, "offset");
  EXPECT_TRUE(family.tensors[0].hides);
  EXPECT_FALSE(family.tensors[1].hides);
  EXPECT_TRUE(family.has_factors(family.tensors[0], {{"HAS_WEIGHT", 0}}));
  EXPECT_FALSE(family.has_factors(family.tensors[0], {}));
  EXPECT_FALSE(family.has_factors(family.tensors[1], {{"HAS_WEIGHT", 0}}));
  EXPECT_FALSE(family.tensors[0].dtype.has_value());
  EXPECT_EQ(family.tensors[3].dtype, Dtype::float32);
  EXPECT_TRUE(family.is_absent(family.tensors[1], {{"HAS_WEIGHT", 0}}));
  EXPECT_FALSE(family.is_absent(family.tensors[1], {}));
  EXPECT_EQ(std::get<double>(family.scalars.at("eps")), 1e-6);
  EXPECT_EQ(std::get<int64_t>(family.scalars.at("offset")), 3);
  EXPECT_EQ(family.spellings.at(0).options.at("HAS_WEIGHT"), 0);
  EXPECT_EQ(family.spellings.at(0).labels.at("x"), (std::vector<std::string>{"*M", "N"}));
  EXPECT_EQ(family.edges.at(0).layout, "strided");
  EXPECT_EQ(family.sweep.at(0).dims.at("N"), 768);
  EXPECT_EQ(family.tolerance_k, 12.5);
}

TEST(Family, NamesEachMistakeWithItsLine) {
  struct Mistake {
    std::string from, to, message;
  };
  const std::vector<Mistake> mistakes = {
      {"summary =", "sumary =", "f.toml:2: sumary: unknown key"},
      {"flops   = \"4*M*N\"", "flops = \"4*M*K\"", "f.toml:4: flops: there is no dim or option 'K'"},
      {"flops   = \"4*M*N\"", "flops = \"4*(M\"", "f.toml:4"},
      {"dtypes  = [\"float32\", \"bfloat16\"]", "dtypes = [\"float33\"]", "f.toml:3: dtypes: "},
      {"dtypes  = [\"float32\", \"bfloat16\"]", "dtypes = []", "f.toml:3: dtypes: must not be empty"},
      {"role = \"data\"", "role = \"datum\"", "f.toml:8: tensor[0].role: unknown role 'datum'"},
      {"name = \"weight\"", "name = \"x\"", "f.toml:13: tensor[1].name: the tensor 'x' is there twice"},
      {"optional = \"HAS_WEIGHT\"", "optional = \"WEIGHT\"", "f.toml:16: tensor[1].optional: there is no option 'WEIGHT'"},
      {"hides = true", "hides = 1", "f.toml:10: tensor[0].hides: true or false is needed"},
      {"factors = \"HAS_WEIGHT == 0\"", "factors = \"N\"", "f.toml:11: tensor[0].factors: there is no option 'N'"},
      {"ignored = \"offset\"", "ignored = \"padding\"", "f.toml:22: tensor[2].ignored: the family has no scalar 'padding'"},
      {"role = \"output\"", "role = \"data\"", "no tensor has the role output"},
      {"eps = 1e-6", "eps = \"small\"", "scalars.eps: must be a number"},
      {"HAS_WEIGHT = 1", "HAS_WEIGHT = 1.5", "options.HAS_WEIGHT: must be an integer"},
      {"x = [\"*M\", \"N\"], out", "y = [\"*M\", \"N\"], out", "labels.y: the family has no tensor 'y'"},
      {"scalars  = [\"eps\"]", "scalars = [\"epsilon\"]", "the family has no scalar 'epsilon'"},
      {"options  = { HAS_WEIGHT = 0 }", "options = { HAS_BIAS = 0 }", "options.HAS_BIAS: the family has no option 'HAS_BIAS'"},
      {"{ M = 1, N = 768 }", "{ M = 1 }", "stages.sweep[0]: lacks the dim 'N'"},
      {"{ M = 1, N = 768 }", "{ M = 1, N = 768, K = 2 }", "stages.sweep[0].K: no tensor has the dim 'K'"},
      {"{ M = 1, N = 768 }", "{ M = -1, N = 768 }", "stages.sweep[0].M: must not be negative"},
      {"layout = \"strided\"", "layout = \"spiral\"", "stages.edges[0].layout: unknown layout 'spiral'"},
      {"k = 12.5", "k = 0", "tolerance.k: must be a number above 0"},
      {"name    = \"rmsnorm\"", "name    = rmsnorm", "f.toml"},
  };
  for (const Mistake& mistake : mistakes) {
    EXPECT_THAT(error_of([&] { parse_family(replaced(mistake.from, mistake.to), "f.toml"); }), HasSubstr(mistake.message));
  }
}

TEST(Family, EveryFamilyOfTheRepositoryLoads) {
  const Families families = load_families(std::string(AK_SOURCE_DIR) + "/kernels");
  EXPECT_GE(families.size(), 3u);
  for (const auto& [name, family] : families) {
    EXPECT_FALSE(family.spellings.empty()) << name;
    EXPECT_FALSE(family.edges.empty()) << name;
  }
  EXPECT_THAT(error_of([] { load_families("/nowhere"); }), HasSubstr("no directory of families"));
}

}  // namespace
}  // namespace ak::graph
