// Fallback for builds without HiGHS: only elimination is available.
#include "trireme/plan/graph/choice.h"

namespace trireme {

bool has_highs() { return false; }
bool solve_with_highs(const ChoiceProblem&, double, ChoiceSolution&) { return false; }

}  // namespace trireme
