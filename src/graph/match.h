// Finds the regions of graphs that the families' patterns describe.
#pragma once

#include <vector>

#include "graph/family.h"
#include "graph/graph.h"
#include "graph/pattern.h"
#include "graph/region.h"

namespace ak::graph {

/// Match every pattern everywhere. Of the same nodes under the same family the first pattern's region stays, and a region inside a larger
/// one of the same family goes, unless a region of another family ends with what the larger one has before it: a norm stays beside the norm
/// that adds a residual where a product adds it, too. Regions of different families may overlap.
std::vector<Region> match(const std::vector<Graph>& graphs, const std::vector<Pattern>& patterns, const Families& families);

/// The regions that `pattern` alone finds in `graph`, one a place, overlaps included. Their task ids are empty.
std::vector<Region> match_pattern(const Graph& graph, const Pattern& pattern, const Family& family);

}  // namespace ak::graph
