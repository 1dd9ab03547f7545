// Where the build found no HiGHS: elimination has to do alone.
#include "trireme/plan/graph/choice.h"

namespace trireme {

bool has_highs() { return false; }
bool solve_with_highs(const ChoiceProblem&, double, ChoiceSolution&) { return false; }

}  // namespace trireme
