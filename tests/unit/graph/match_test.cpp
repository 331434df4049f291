// Matching: what is found, with which dims and strides, and what is refused.
#include "graph/match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "builders.h"

namespace ak::graph {
namespace {

using Strides = std::vector<int64_t>;

std::vector<Region> match_all(const GraphBuilder& builder, const std::vector<PatternText>& patterns, const Families& families) {
  return match(builder.graphs(), patterns_of(patterns, families), families);
}

// ---- rmsnorm in two spellings

const Families& rmsnorm() {
  static const Families families = family_of(
      "rmsnorm", {{"x", "data", {"M", "N"}}, {"weight", "weight", {"N"}}, {"out", "output", {"M", "N"}}}, "[scalars]\neps = 1e-6");
  return families;
}

Json mean_args(const Json& self) { return {{"self", self}, {"dim", {-1}}, {"keepdim", true}, {"dtype", nullptr}}; }
Json with_alpha(const Json& self, const Json& other) { return {{"self", self}, {"other", other}, {"alpha", 1}}; }
Json pair(const Json& self, const Json& other) { return {{"self", self}, {"other", other}}; }

/// `square` is "pow" or "product".
PatternText rmsnorm_pattern(const std::string& square) {
  const bool is_pow = square == "pow";
  return {.family = "rmsnorm",
          .spelling = square,
          .inputs = {{"x", {"*M", "N"}}, {"weight", {"N"}}},
          .nodes = {is_pow ? PatternText::NodeText{"sq", "pow.Tensor_Scalar", {{"self", in("x")}, {"exponent", 2}}}
                           : PatternText::NodeText{"sq", "mul.Tensor", pair(in("x"), in("x"))},
                    {"mean", "mean.dim", mean_args(at("sq"))},
                    {"shifted", "add.Tensor", with_alpha(at("mean"), {{"scalar", "eps"}})},
                    {"r", "rsqrt.default", {{"self", at("shifted")}}},
                    {"normed", "mul.Tensor", pair(in("x"), at("r"))},
                    {"out", "mul.Tensor", pair(in("weight"), at("normed"))}},
          .outputs = {{"out", {"*M", "N"}}}};
}

/// x [2, 5, 8] as the model writes it; returns the output's name.
std::string write_rmsnorm(GraphBuilder& g, const std::string& x, const std::string& p, bool power, bool swapped, double eps = 1e-5) {
  if (power) {
    g.op(p + "sq", "pow.Tensor_Scalar", {{"self", at(x)}, {"exponent", 2.0}}, {2, 5, 8});
  } else {
    g.mul(p + "sq", at(x), at(x), {2, 5, 8});
  }
  g.op(p + "mean", "mean.dim", mean_args(at(p + "sq")), {2, 5, 1});
  g.op(p + "eps", "add.Tensor", with_alpha(at(p + "mean"), eps), {2, 5, 1});
  g.op(p + "r", "rsqrt.default", {{"self", at(p + "eps")}}, {2, 5, 1});
  swapped ? g.mul(p + "n", at(p + "r"), at(x), {2, 5, 8}) : g.mul(p + "n", at(x), at(p + "r"), {2, 5, 8});
  return swapped ? g.mul(p + "out", at(p + "n"), at("w"), {2, 5, 8}) : g.mul(p + "out", at("w"), at(p + "n"), {2, 5, 8});
}

TEST(Match, FindsBothSpellingsOfRmsnormInEitherOrderOfProducts) {
  for (const bool swapped : {false, true}) {
    GraphBuilder g;
    g.placeholder("x", {2, 5, 8});
    g.parameter("w", {8});
    g.output({write_rmsnorm(g, write_rmsnorm(g, "x", "a_", true, swapped), "b_", false, !swapped, 1e-3)});
    const auto regions = match_all(g, {rmsnorm_pattern("pow"), rmsnorm_pattern("product")}, rmsnorm());
    ASSERT_EQ(regions.size(), 2u);
    EXPECT_EQ(regions[0].spelling, "pow");
    EXPECT_EQ(regions[1].spelling, "product");
    EXPECT_EQ(regions[0].nodes, (std::vector<std::string>{"a_sq", "a_mean", "a_eps", "a_r", "a_n", "a_out"}));
    EXPECT_EQ(regions[1].inputs, (std::map<std::string, std::string>{{"x", "a_out"}, {"weight", "w"}}));
    EXPECT_EQ(regions[1].outputs.at("out"), "b_out");
    EXPECT_EQ(regions[0].constants, std::set<std::string>{"weight"});
    EXPECT_EQ(regions[0].dims, (std::map<std::string, int64_t>{{"M", 10}, {"N", 8}}));
    EXPECT_EQ(regions[0].strides.at("x"), (Strides{8, 1}));
    EXPECT_EQ(std::get<double>(regions[0].scalars.at("eps")), 1e-5);
    EXPECT_EQ(std::get<double>(regions[1].scalars.at("eps")), 1e-3);
    EXPECT_NE(regions[0].task, regions[1].task) << "another eps is another contract";
  }
}

TEST(Match, RefusesAnInnerValueUsedOutside) {
  GraphBuilder g;
  g.placeholder("x", {2, 5, 8});
  g.parameter("w", {8});
  const std::string out = write_rmsnorm(g, "x", "a_", true, false);
  g.op("other", "neg.default", {{"self", at("a_r")}}, {2, 5, 1});
  g.output({out, "other"});
  EXPECT_TRUE(match_all(g, {rmsnorm_pattern("pow")}, rmsnorm()).empty());
}

TEST(Match, RefusesAnotherDtypeAndASymbolicSize) {
  const auto count = [](const std::string& dtype, bool symbolic) {
    GraphBuilder g;
    g.placeholder("x", {2, 5, 8}, "input", dtype);
    g.parameter("w", {8});
    g.output({write_rmsnorm(g, "x", "a_", true, false)});
    if (symbolic) g.nodes()[0]["out"][0]["shape"][0] = {{"symbol", "s0"}, {"hint", 2}};
    return match_all(g, {rmsnorm_pattern("pow")}, rmsnorm()).size();
  };
  EXPECT_EQ(count("float32", false), 1u);
  EXPECT_EQ(count("float16", false), 0u);
  EXPECT_EQ(count("float32", true), 0u);
}

TEST(Match, ComparesConstantsExactly) {
  const auto count = [](const Json& exponent, const Json& dim) {
    GraphBuilder g;
    g.placeholder("x", {2, 5, 8});
    g.parameter("w", {8});
    g.output({write_rmsnorm(g, "x", "a_", true, false)});
    g.nodes()[2]["args"]["exponent"] = exponent;
    g.nodes()[3]["args"]["dim"] = dim;
    return match_all(g, {rmsnorm_pattern("pow")}, rmsnorm()).size();
  };
  EXPECT_EQ(count(2, {-1}), 1u);
  EXPECT_EQ(count(3, {-1}), 0u);
  EXPECT_EQ(count(2, {-2}), 0u);
  EXPECT_EQ(count(2, {-1, -2}), 0u);
  EXPECT_EQ(count(2, -1), 0u);
  EXPECT_EQ(count(true, {-1}), 0u);
  EXPECT_EQ(count(Json::parse(R"({"symbol": "s0", "hint": 2})"), {-1}), 0u);
}

// ---- rmsnorm of a sum: with the sum as another output where it is used again

const Families& rmsnorm_of_sum() {
  static const Families families = family_of("rmsnorm",
                                             {{"x", "data", {"M", "N"}},
                                              {"weight", "weight", {"N"}},
                                              {"residual", "data", {"M", "N"}, "HAS_RESIDUAL"},
                                              {"out", "output", {"M", "N"}},
                                              {"residual_out", "output", {"M", "N"}, "HAS_RESIDUAL_OUT"}},
                                             "[scalars]\neps = 1e-6\n[options]\nHAS_RESIDUAL = 0\nHAS_RESIDUAL_OUT = 0");
  return families;
}

PatternText rmsnorm_of_sum_pattern(bool keeps_sum) {
  const Json sum = at("sum");
  PatternText pattern{.family = "rmsnorm",
                      .spelling = keeps_sum ? "residual_out" : "residual",
                      .inputs = {{"x", {"*M", "N"}}, {"weight", {"N"}}, {"residual", {"*M", "N"}}},
                      .nodes = {{"sum", "add.Tensor", with_alpha(in("x"), in("residual"))},
                                {"sq", "pow.Tensor_Scalar", {{"self", sum}, {"exponent", 2}}},
                                {"mean", "mean.dim", mean_args(at("sq"))},
                                {"shifted", "add.Tensor", with_alpha(at("mean"), {{"scalar", "eps"}})},
                                {"r", "rsqrt.default", {{"self", at("shifted")}}},
                                {"normed", "mul.Tensor", pair(sum, at("r"))},
                                {"out", "mul.Tensor", pair(in("weight"), at("normed"))}},
                      .outputs = {{"out", {"*M", "N"}}},
                      .options = {{"HAS_RESIDUAL", 1}, {"HAS_RESIDUAL_OUT", keeps_sum ? 1 : 0}}};
  if (keeps_sum) pattern.outputs.push_back({"sum", {"*M", "N"}, "residual_out"});
  return pattern;
}

std::vector<Region> match_sums(const GraphBuilder& g) {
  return match_all(g, {rmsnorm_pattern("pow"), rmsnorm_of_sum_pattern(false), rmsnorm_of_sum_pattern(true)}, rmsnorm_of_sum());
}

/// x [2, 5, 8] + y, and the norm of the sum; returns the norm.
std::string write_norm_of_sum(GraphBuilder& g, const Json& a, const Json& b) {
  g.placeholder("x", {2, 5, 8});
  g.placeholder("y", {2, 5, 8});
  g.parameter("w", {8});
  g.add("sum", a, b, {2, 5, 8});
  return write_rmsnorm(g, "sum", "n_", true, false);
}

TEST(Match, ANormTakesTheSumBeforeItInEitherOrder) {
  for (const bool swapped : {false, true}) {
    GraphBuilder g;
    const std::string out = write_norm_of_sum(g, at(swapped ? "y" : "x"), at(swapped ? "x" : "y"));
    g.output({out});
    const auto regions = match_sums(g);
    ASSERT_EQ(regions.size(), 1u);
    EXPECT_EQ(regions[0].spelling, "residual") << "what keeps the sum fits, too, and does more than is needed";
    EXPECT_EQ(regions[0].nodes.front(), "sum");
    EXPECT_EQ(regions[0].outputs, (std::map<std::string, std::string>{{"out", out}}));
    EXPECT_EQ((std::set<std::string>{regions[0].inputs.at("x"), regions[0].inputs.at("residual")}), (std::set<std::string>{"x", "y"}));
  }
}

TEST(Match, ANormKeepsTheSumThatIsUsedAfterItOrIsTheModelsOutput) {
  for (const bool is_output : {false, true}) {
    GraphBuilder g;
    const std::string out = write_norm_of_sum(g, at("x"), at("y"));
    g.add("next", at("sum"), at(out), {2, 5, 8});
    g.output(is_output ? std::vector<std::string>{"sum", out} : std::vector<std::string>{"next"});
    const auto regions = match_sums(g);
    ASSERT_EQ(regions.size(), 1u);
    EXPECT_EQ(regions[0].spelling, "residual_out");
    EXPECT_EQ(regions[0].outputs, (std::map<std::string, std::string>{{"out", out}, {"residual_out", "sum"}}));
  }
}

TEST(Match, OfTwoNormsOfASumTheFirstTakesIt) {
  GraphBuilder g;
  const std::string first = write_norm_of_sum(g, at("x"), at("y"));
  const std::string second = write_rmsnorm(g, "sum", "m_", true, false);
  g.output({first, second});
  const auto regions = match_sums(g);
  ASSERT_EQ(regions.size(), 2u);
  EXPECT_EQ(regions[0].spelling, "residual_out");
  EXPECT_EQ(regions[1].spelling, "pow");
  EXPECT_EQ(regions[1].inputs.at("x"), "sum");
}

TEST(Match, ANormLeavesASumThatIsNotItsOwn) {
  const auto spelling = [](const std::function<void(GraphBuilder&)>& change) {
    GraphBuilder g;
    const std::string out = write_norm_of_sum(g, at("x"), at("y"));
    change(g);
    g.output({out});
    const auto regions = match_sums(g);
    return regions.size() == 1 ? regions[0].spelling : std::to_string(regions.size()) + " regions";
  };
  constexpr size_t y = 1, sum = 3;  // positions of nodes
  const auto resized = [](const Json& shape, const Json& strides) {
    return [=](GraphBuilder& g) {
      g.nodes()[y]["out"][0]["shape"] = shape;
      g.nodes()[y]["out"][0]["strides"] = strides;
    };
  };
  EXPECT_EQ(spelling([](GraphBuilder&) {}), "residual");
  EXPECT_EQ(spelling(resized({5, 8}, {8, 1})), "pow") << "broadcast over the batch";
  EXPECT_EQ(spelling(resized({8}, {1})), "pow") << "a bias";
  EXPECT_EQ(spelling(resized({2, 5, 1}, {5, 1, 1})), "pow");
  EXPECT_EQ(spelling(resized({2, 5, 8}, {8, 16, 1})), "pow") << "rows that do not collapse";
  EXPECT_EQ(spelling(resized({2, 5, 8}, {5, 1, 10})), "residual") << "any strides that do";
  EXPECT_EQ(spelling([](GraphBuilder& g) { g.nodes()[y]["out"][0]["dtype"] = "float16"; }), "pow");
  EXPECT_EQ(spelling([](GraphBuilder& g) { g.nodes()[sum]["args"]["alpha"] = 2; }), "pow");
  EXPECT_EQ(spelling([](GraphBuilder& g) { g.nodes()[sum]["args"]["other"] = 1.5; }), "pow") << "a number";
  EXPECT_EQ(spelling([](GraphBuilder& g) { g.nodes()[sum]["op"] = "inplace:aten.add_.Tensor"; }), "pow");
}

TEST(Match, ASumThatIsUsedBeforeTheNormIsDoneStaysOutside) {
  GraphBuilder g;
  const std::string out = write_norm_of_sum(g, at("x"), at("y"));
  Json& nodes = g.nodes();
  GraphBuilder early;
  early.op("early", "neg.default", {{"self", at("sum")}}, {2, 5, 8});
  nodes.insert(nodes.begin() + 5, early.nodes()[0]);  // after the squares
  g.output({out, "early"});
  const auto regions = match_sums(g);
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_EQ(regions[0].spelling, "pow");
}

// ---- linear: labels, strides, containment

const Families& linear() {
  static const Families families = family_of("matmul",
                                             {{"x", "data", {"M", "K"}},
                                              {"weight", "weight", {"N", "K"}},
                                              {"residual", "data", {"M", "N"}, "HAS_RESIDUAL"},
                                              {"out", "output", {"M", "N"}}},
                                             "[options]\nHAS_RESIDUAL = 0");
  return families;
}
Json linear_args(const Json& x, const Json& weight) { return {{"input", x}, {"weight", weight}, {"bias", nullptr}}; }
const PatternText linear_pattern{.family = "matmul",
                                 .spelling = "linear",
                                 .inputs = {{"x", {"*M", "K"}}, {"weight", {"N", "K"}}},
                                 .nodes = {{"y", "linear.default", linear_args(in("x"), in("weight"))}},
                                 .outputs = {{"y", {"*M", "N"}}}};
const PatternText matmul_pattern{.family = "matmul",
                                 .spelling = "matmul",
                                 .inputs = {{"x", {"*M", "K"}}, {"weight", {"K", "N"}}},
                                 .nodes = {{"y", "matmul.default", pair(in("x"), in("weight"))}},
                                 .outputs = {{"y", {"*M", "N"}}}};
const PatternText residual_pattern{
    .family = "matmul",
    .spelling = "residual",
    .inputs = {{"x", {"*M", "K"}}, {"weight", {"N", "K"}}, {"residual", {"*M", "N"}}},
    .nodes = {{"y", "linear.default", linear_args(in("x"), in("weight"))}, {"z", "add.Tensor", with_alpha(in("residual"), at("y"))}},
    .outputs = {{"z", {"*M", "N"}}},
    .options = {{"HAS_RESIDUAL", 1}}};

TEST(Match, PermutedLabelsGiveStridesInTheContractsOrder) {
  GraphBuilder g;
  g.placeholder("x", {2, 3, 4});
  g.parameter("w", {4, 6});
  g.op("y", "matmul.default", pair(at("x"), at("w")), {2, 3, 6});
  g.output({"y"});
  const auto regions = match_all(g, {matmul_pattern}, linear());
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_EQ(regions[0].dims, (std::map<std::string, int64_t>{{"K", 4}, {"M", 6}, {"N", 6}}));
  EXPECT_EQ(regions[0].strides.at("weight"), (Strides{1, 6}));
}

TEST(Match, LeadingDimsCollapseOrThereIsNoMatch) {
  struct Case {
    std::vector<int64_t> shape, strides;
    std::optional<Strides> in_contract;
  };
  const std::vector<Case> cases = {
      {{2, 3, 4}, {12, 4, 1}, Strides{4, 1}},
      {{2, 3, 4}, {30, 10, 1}, Strides{10, 1}},  // rows further apart
      {{2, 3, 4}, {4, 8, 1}, std::nullopt},      // batch and rows swapped
      {{2, 3, 4}, {0, 4, 1}, std::nullopt},      // one matrix, seen twice
      {{1, 3, 4}, {999, 4, 1}, Strides{4, 1}},   // a dim of size 1 may have any stride
      {{3, 1, 4}, {4, 77, 1}, Strides{4, 1}},
      {{1, 1, 4}, {5, 6, 1}, Strides{4, 1}},  // M is 1: the stride of a contiguous tensor
      {{4}, {1}, Strides{4, 1}},              // no leading dims
      {{3, 4}, {1, 3}, Strides{1, 3}},        // a transposed matrix
      {{2, 2, 3, 4}, {24, 12, 4, 1}, Strides{4, 1}},
      {{2, 2, 3, 4}, {48, 12, 4, 1}, std::nullopt},
      {{0, 3, 4}, {1, 4, 1}, Strides{4, 1}},  // nothing to walk
  };
  for (const Case& each : cases) {
    GraphBuilder g;
    g.placeholder("x", each.shape, "input", "float32", each.strides);
    g.parameter("w", {6, 4});
    std::vector<int64_t> out = each.shape;
    out.back() = 6;
    g.op("y", "linear.default", linear_args(at("x"), at("w")), out);
    g.output({"y"});
    const auto regions = match_all(g, {linear_pattern}, linear());
    ASSERT_EQ(regions.size(), each.in_contract ? 1u : 0u) << Json(each.shape) << Json(each.strides);
    if (!each.in_contract) continue;
    EXPECT_EQ(regions[0].strides.at("x"), *each.in_contract) << Json(each.shape);
  }
}

TEST(Match, OutputsMustCollapseToo) {
  GraphBuilder g;
  g.placeholder("x", {2, 3, 4});
  g.parameter("w", {6, 4});
  g.op("y", "linear.default", linear_args(at("x"), at("w")), {2, 3, 6}, {6, 12, 1});
  g.output({"y"});
  EXPECT_TRUE(match_all(g, {linear_pattern}, linear()).empty());
}

TEST(Match, ARegionInsideALargerOneOfItsFamilyGoes) {
  GraphBuilder g;
  g.placeholder("x", {2, 3, 4});
  g.parameter("w", {4, 4});
  g.op("a", "linear.default", linear_args(at("x"), at("w")), {2, 3, 4});
  g.add("b", at("a"), at("x"), {2, 3, 4});
  g.op("c", "linear.default", linear_args(at("b"), at("w")), {2, 3, 4});
  g.output({"c"});
  const auto regions = match_all(g, {linear_pattern, residual_pattern}, linear());
  ASSERT_EQ(regions.size(), 2u);
  EXPECT_EQ(regions[0].spelling, "residual");
  EXPECT_EQ(regions[0].inputs.at("residual"), "x") << "two inputs may be one node";
  EXPECT_EQ(regions[1].nodes, std::vector<std::string>{"c"});
}

TEST(Match, ANormOfASumStaysBesideTheNormWithTheSumWhereAProductAddsItToo) {
  Families both = linear();
  both.insert(rmsnorm_of_sum().begin(), rmsnorm_of_sum().end());
  for (const bool of_product : {true, false}) {
    GraphBuilder g;
    g.placeholder("x", {2, 5, 8});
    g.placeholder("y", {2, 5, 8});
    g.parameter("w", {8});
    g.parameter("u", {8, 8});
    g.op("product", "linear.default", linear_args(at("y"), at("u")), {2, 5, 8});
    g.add("sum", at("x"), at(of_product ? "product" : "y"), {2, 5, 8});
    const std::string out = write_rmsnorm(g, "sum", "n_", true, false);
    g.output(of_product ? std::vector<std::string>{out} : std::vector<std::string>{out, "product"});
    std::vector<std::string> found;
    for (const Region& region :
         match_all(g, {linear_pattern, residual_pattern, rmsnorm_pattern("pow"), rmsnorm_of_sum_pattern(false)}, both))
      found.push_back(region.family + " " + region.spelling);
    std::ranges::sort(found);
    EXPECT_EQ(found, of_product ? std::vector<std::string>({"matmul residual", "rmsnorm pow", "rmsnorm residual"})
                                : std::vector<std::string>({"matmul linear", "rmsnorm residual"}));
  }
}

TEST(Match, AnInputMadeInsideTheRegionIsNone) {
  GraphBuilder g;
  g.placeholder("x", {2, 3, 4});
  g.parameter("w", {4, 4});
  g.op("a", "linear.default", linear_args(at("x"), at("w")), {2, 3, 4});
  g.add("twice", at("a"), at("a"), {2, 3, 4});
  g.output({"twice"});
  EXPECT_TRUE(match_all(g, {residual_pattern}, linear()).empty());
}

TEST(Match, LeadingDimsThatBroadcastAgainstEachOtherAreNoMatch) {
  GraphBuilder g;
  g.placeholder("x", {2, 3, 4});
  g.parameter("w", {4, 4});
  g.placeholder("r", {3, 2, 4});
  g.op("a", "linear.default", linear_args(at("x"), at("w")), {2, 3, 4});
  g.add("b", at("a"), at("r"), {2, 3, 4});  // no such sum exists; the product of the leading dims alone would accept it
  g.output({"b"});
  EXPECT_TRUE(match_all(g, {residual_pattern}, linear()).empty());
}

TEST(Match, AnInPlaceOperatorMatchesNothing) {
  GraphBuilder g;
  g.placeholder("x", {3, 4});
  g.parameter("w", {4, 4});
  g.op("y", "inplace:aten.linear.default", linear_args(at("x"), at("w")), {3, 4});
  g.output({"y"});
  EXPECT_TRUE(match_all(g, {linear_pattern}, linear()).empty());
}

TEST(Match, OfTheSameNodesTheFirstPatternStays) {
  GraphBuilder g;
  g.placeholder("x", {3, 4});
  g.parameter("w", {4, 4});
  g.op("y", "linear.default", linear_args(at("x"), at("w")), {3, 4});
  g.output({"y"});
  PatternText again = linear_pattern;
  again.spelling = "again";
  EXPECT_EQ(match_all(g, {again, linear_pattern}, linear()).at(0).spelling, "again");
  EXPECT_EQ(match_all(g, {linear_pattern, again}, linear()).at(0).spelling, "linear");
}

// ---- attention: broadcast labels, arguments that say nothing

TEST(Match, MaskOfOneHeadHasTheStrideZeroOverHeads) {
  const Families families = family_of("attention", {{"q", "data", {"B", "H", "S", "D"}},
                                                    {"k", "data", {"B", "G", "L", "D"}},
                                                    {"v", "data", {"B", "G", "L", "D"}},
                                                    {"mask", "data", {"B", "H", "S", "L"}},
                                                    {"out", "output", {"B", "H", "S", "D"}}});
  const auto args = [](const Json& q, const Json& k, const Json& v, const Json& mask, const Json& device) {
    return Json{{"query", q},       {"key", k},           {"value", v},       {"attn_mask", mask},
                {"dropout_p", 0.0}, {"is_causal", false}, {"scale", nullptr}, {"device", device}};
  };
  const std::vector<std::string> q_labels = {"B", "H", "S", "D"}, kv_labels = {"B", "G", "L", "D"};
  const auto pattern = [&](const std::vector<std::string>& mask) {
    return PatternText{.family = "attention",
                       .inputs = {{"q", q_labels}, {"k", kv_labels}, {"v", kv_labels}, {"mask", mask}},
                       .nodes = {{"a", "sdpa.default", args(in("q"), in("k"), in("v"), in("mask"), {{"other", "cpu"}})}},
                       .outputs = {{"a", q_labels}}};
  };
  GraphBuilder g;
  g.placeholder("q", {2, 4, 5, 8}, "input", "float32", {160, 8, 32, 1});  // transposed from [B, S, H, D]
  g.placeholder("k", {2, 2, 7, 8});
  g.placeholder("v", {2, 2, 7, 8});
  g.placeholder("m", {2, 1, 5, 7});
  g.op("a", "sdpa.default", args(at("q"), at("k"), at("v"), at("m"), {{"other", "cuda:0"}}), {2, 4, 5, 8});
  g.output({"a"});
  const auto regions = match_all(g, {pattern({"B", "H", "S", "L"}), pattern({"S", "L"}), pattern({"B", "1", "S", "L"})}, families);
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_EQ(regions[0].dims, (std::map<std::string, int64_t>{{"B", 2}, {"D", 8}, {"G", 2}, {"H", 4}, {"L", 7}, {"S", 5}}));
  EXPECT_EQ(regions[0].strides.at("mask"), (Strides{35, 0, 7, 1}));
  EXPECT_EQ(regions[0].strides.at("q"), (Strides{160, 8, 32, 1}));
}

// ---- rotary embedding: expressions of dims

TEST(Match, ExpressionsOfDimsComeFromTheShapes) {
  const Families families = family_of("rope", {{"x", "data", {"B", "D"}}, {"cos", "data", {"D/2"}}, {"out", "output", {"B", "D"}}});
  const auto slice = [](const Json& self, const Json& start, const Json& end) {
    return Json{{"self", self}, {"dim", -1}, {"start", start}, {"end", end}, {"step", 1}};
  };
  const Json half = {{"expression", "D/2"}}, whole = {{"expression", "D"}};
  const PatternText pattern{.family = "rope",
                            .inputs = {{"x", {"B", "D"}}, {"cos", {"D/2"}}},
                            .nodes = {{"lo", "slice.Tensor", slice(in("x"), 0, half)},
                                      {"hi", "slice.Tensor", slice(in("x"), half, whole)},
                                      {"a", "mul.Tensor", pair(at("lo"), in("cos"))},
                                      {"b", "mul.Tensor", pair(at("hi"), in("cos"))},
                                      {"out", "cat.default", {{"tensors", {at("b"), at("a")}}, {"dim", -1}}}},
                            .outputs = {{"out", {"B", "D"}}}};
  const auto count = [&](int64_t middle, int64_t table, bool swapped) {
    GraphBuilder g;
    g.placeholder("x", {3, 12});
    g.placeholder("c", {table});
    g.op("lo", "slice.Tensor", slice(at("x"), 0, middle), {3, middle});
    g.op("hi", "slice.Tensor", slice(at("x"), middle, 12), {3, 12 - middle});
    g.mul("a", at("c"), at("lo"), {3, middle});
    g.mul("b", at("hi"), at("c"), {3, 12 - middle});
    g.op("out", "cat.default", {{"tensors", swapped ? Json{at("a"), at("b")} : Json{at("b"), at("a")}}, {"dim", -1}}, {3, 12});
    g.output({"out"});
    return match_all(g, {pattern}, families).size();
  };
  EXPECT_EQ(count(6, 6, false), 1u);
  EXPECT_EQ(count(4, 6, false), 0u);
  EXPECT_EQ(count(6, 5, false), 0u);
  EXPECT_EQ(count(6, 6, true), 0u) << "the order in a list counts";
}

TEST(Match, LeadingDimsInAListOfSizes) {
  const Families families = family_of("heads", {{"x", "data", {"M", "D"}}, {"out", "output", {"M", "2", "D/2"}}});
  const PatternText pattern{
      .family = "heads",
      .inputs = {{"x", {"*M", "D"}}},
      .nodes = {{"y", "reshape.default", {{"self", in("x")}, {"shape", {{{"expression", "*M"}}, 2, {{"expression", "D/2"}}}}}}},
      .outputs = {{"y", {"*M", "2", "D/2"}}}};
  const auto count = [&](const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
    GraphBuilder g;
    g.placeholder("x", from);
    g.op("y", "reshape.default", {{"self", at("x")}, {"shape", to}}, to);
    g.output({"y"});
    return match_all(g, {pattern}, families).size();
  };
  EXPECT_EQ(count({3, 5, 8}, {3, 5, 2, 4}), 1u);
  EXPECT_EQ(count({8}, {2, 4}), 1u);
  EXPECT_EQ(count({15, 8}, {15, 2, 4}), 1u);
  EXPECT_EQ(count({3, 5, 8}, {5, 3, 2, 4}), 0u);
  EXPECT_EQ(count({3, 5, 8}, {3, 5, 4, 2}), 0u);
}

TEST(Match, ADimThatNoLabelNamesIsOne) {
  const Families families = family_of("reduce", {{"x", "data", {"OUTER", "N", "INNER"}}, {"out", "output", {"OUTER", "INNER"}}});
  const PatternText pattern{.family = "reduce",
                            .inputs = {{"x", {"*OUTER", "N"}}},
                            .nodes = {{"y", "mean.dim", mean_args(in("x"))}},
                            .outputs = {{"y", {"*OUTER", "1"}}}};
  GraphBuilder g;
  g.placeholder("x", {2, 3, 4});
  g.op("y", "mean.dim", mean_args(at("x")), {2, 3, 1});
  g.output({"y"});
  const auto regions = match_all(g, {pattern}, families);
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_EQ(regions[0].dims, (std::map<std::string, int64_t>{{"INNER", 1}, {"N", 4}, {"OUTER", 6}}));
  EXPECT_EQ(regions[0].strides.at("x"), (Strides{4, 1, 1}));
}

TEST(Match, ADimThatOnlyAbsentTensorsHaveIsOne) {
  const Families families = family_of("turn", {{"x", "data", {"H", "D"}}, {"k", "data", {"G", "D"}, "PAIR"}, {"out", "output", {"H", "D"}}},
                                      "[options]\nPAIR = 0");
  const PatternText pattern{.family = "turn",
                            .inputs = {{"x", {"H", "D"}}},
                            .nodes = {{"y", "mul.Tensor", pair(in("x"), in("x"))}},
                            .outputs = {{"y", {"H", "D"}}}};
  GraphBuilder g;
  g.placeholder("x", {3, 4});
  g.output({g.mul("y", at("x"), at("x"), {3, 4})});
  const auto regions = match_all(g, {pattern}, families);
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_EQ(regions[0].dims, (std::map<std::string, int64_t>{{"D", 4}, {"G", 1}, {"H", 3}}));
}

// ---- two orders that both look right at first

TEST(Match, GoesBackToTheOtherOrderWhenTheFirstFailsLater) {
  // out = a * b + c * b with a of rows and b, c of columns: only shapes, and the shared b, tell the orders apart.
  const Families families =
      family_of("f", {{"a", "data", {"M", "N"}}, {"b", "data", {"N"}}, {"c", "data", {"M", "N"}}, {"out", "output", {"M", "N"}}});
  const PatternText pattern{.family = "f",
                            .inputs = {{"a", {"*M", "N"}}, {"b", {"N"}}, {"c", {"*M", "N"}}},
                            .nodes = {{"p", "mul.Tensor", pair(in("a"), in("b"))},
                                      {"q", "mul.Tensor", pair(in("c"), in("b"))},
                                      {"s", "add.Tensor", with_alpha(at("p"), at("q"))}},
                            .outputs = {{"s", {"*M", "N"}}}};
  for (int order = 0; order < 8; ++order) {
    GraphBuilder g;
    g.placeholder("a", {2, 3, 4});
    g.placeholder("b", {4});
    g.placeholder("c", {2, 3, 4});
    (order & 1) != 0 ? g.mul("p", at("b"), at("a"), {2, 3, 4}) : g.mul("p", at("a"), at("b"), {2, 3, 4});
    (order & 2) != 0 ? g.mul("q", at("b"), at("c"), {2, 3, 4}) : g.mul("q", at("c"), at("b"), {2, 3, 4});
    (order & 4) != 0 ? g.add("s", at("q"), at("p"), {2, 3, 4}) : g.add("s", at("p"), at("q"), {2, 3, 4});
    g.output({"s"});
    const auto regions = match_all(g, {pattern}, families);
    ASSERT_EQ(regions.size(), 1u) << order;
    EXPECT_EQ(regions[0].inputs.at("b"), "b") << order;
  }
}

TEST(Match, ASumThatIsScaledDoesNotCommute) {
  const Families families = family_of("f", {{"a", "data", {"N"}}, {"b", "weight", {"N"}}, {"out", "output", {"N"}}});
  const auto scaled = [](const Json& self, const Json& other) { return Json{{"self", self}, {"other", other}, {"alpha", 2}}; };
  const PatternText pattern{.family = "f",
                            .inputs = {{"a", {"N"}}, {"b", {"N"}}},
                            .nodes = {{"n", "neg.default", {{"self", in("a")}}}, {"s", "add.Tensor", scaled(at("n"), in("b"))}},
                            .outputs = {{"s", {"N"}}}};
  for (const bool swapped : {false, true}) {
    GraphBuilder g;
    g.placeholder("a", {4});
    g.placeholder("b", {4});
    g.op("n", "neg.default", {{"self", at("a")}}, {4});
    g.op("s", "add.Tensor", swapped ? scaled(at("b"), at("n")) : scaled(at("n"), at("b")), {4});
    g.output({"s"});
    EXPECT_EQ(match_all(g, {pattern}, families).size(), swapped ? 0u : 1u);
  }
}

// ---- scalars

TEST(Match, AScalarUsedTwiceMustBeOneNumberAndOfItsType) {
  const Families families = family_of("f", {{"x", "data", {"N"}}, {"out", "output", {"N"}}}, "[scalars]\ns = 1.0\ni = 7");
  const auto pattern = [](const char* name) {
    return PatternText{
        .family = "f",
        .inputs = {{"x", {"N"}}},
        .nodes = {{"a", "mul.Tensor", pair(in("x"), {{"scalar", name}})}, {"b", "div.Tensor", pair(at("a"), {{"scalar", name}})}},
        .outputs = {{"b", {"N"}}}};
  };
  const auto regions = [&](const char* name, const Json& first, const Json& second) {
    GraphBuilder g;
    g.placeholder("x", {4});
    g.op("a", "mul.Tensor", pair(at("x"), first), {4});
    g.op("b", "div.Tensor", pair(at("a"), second), {4});
    g.output({"b"});
    return match_all(g, {pattern(name)}, families);
  };
  EXPECT_EQ(regions("s", 0.25, 0.5).size(), 0u);
  EXPECT_EQ(regions("s", true, true).size(), 0u);
  EXPECT_EQ(regions("s", Json::parse(R"({"float": "inf"})"), Json::parse(R"({"float": "inf"})")).size(), 0u);
  EXPECT_EQ(regions("i", 0.5, 0.5).size(), 0u);
  ASSERT_EQ(regions("s", 3, 3.0).size(), 1u);
  EXPECT_EQ(regions("s", 3, 3.0)[0].scalars, (std::map<std::string, kernel::Scalar>{{"s", 3.0}, {"i", int64_t{7}}}));
  EXPECT_EQ(std::get<int64_t>(regions("i", -100, -100).at(0).scalars.at("i")), -100);
}

TEST(Match, SpecialNumbersEqualThemselves) {
  const Families families = family_of("f", {{"x", "data", {"N"}}, {"out", "output", {"N"}}});
  const auto special = [](const char* text) { return Json{{"float", text}}; };
  const auto count = [&](const Json& wanted, const Json& given) {
    const PatternText pattern{.family = "f",
                              .inputs = {{"x", {"N"}}},
                              .nodes = {{"a", "fill.Scalar", {{"self", in("x")}, {"value", wanted}}}},
                              .outputs = {{"a", {"N"}}}};
    GraphBuilder g;
    g.placeholder("x", {4});
    g.op("a", "fill.Scalar", {{"self", at("x")}, {"value", given}}, {4});
    g.output({"a"});
    return match_all(g, {pattern}, families).size();
  };
  EXPECT_EQ(count(special("-inf"), special("-inf")), 1u);
  EXPECT_EQ(count(special("nan"), special("nan")), 1u);
  EXPECT_EQ(count(special("-inf"), special("inf")), 0u);
  EXPECT_EQ(count(special("-inf"), -1e30), 0u);
}

// ---- several outputs

TEST(Match, TwoOutputsOfOneOperatorOrOfSeveral) {
  const Families families = family_of(
      "pair", {{"q", "data", {"N"}}, {"k", "data", {"N"}}, {"c", "data", {"N"}}, {"out_q", "output", {"N"}}, {"out_k", "output", {"N"}}});
  const PatternText pattern{.family = "pair",
                            .inputs = {{"q", {"N"}}, {"k", {"N"}}, {"c", {"N"}}},
                            .nodes = {{"a", "sub.Tensor", with_alpha(in("q"), in("c"))}, {"b", "sub.Tensor", with_alpha(in("k"), in("c"))}},
                            .outputs = {{"a", {"N"}, "out_q"}, {"b", {"N"}, "out_k"}}};
  GraphBuilder g;
  for (const char* name : {"q0", "k0", "q1", "k1", "c"}) g.placeholder(name, {4});
  g.op("a0", "sub.Tensor", with_alpha(at("q0"), at("c")), {4});
  g.op("b0", "sub.Tensor", with_alpha(at("k0"), at("c")), {4});
  g.op("use0", "neg.default", {{"self", at("a0")}}, {4});
  g.op("a1", "sub.Tensor", with_alpha(at("q1"), at("c")), {4});
  g.op("b1", "sub.Tensor", with_alpha(at("k1"), at("c")), {4});
  g.output({"use0", "b0", "a1", "b1"});
  const auto regions = match_all(g, {pattern}, families);
  std::vector<std::vector<std::string>> nodes;
  for (const Region& region : regions) nodes.push_back(region.nodes);
  EXPECT_THAT(nodes, ::testing::IsSupersetOf({std::vector<std::string>{"a0", "b0"}, std::vector<std::string>{"a1", "b1"}}));
  for (const auto& each : nodes) EXPECT_FALSE(each.front() == "a0" && each.back() != "b0") << "use0 stands between them";
}

}  // namespace
}  // namespace ak::graph
