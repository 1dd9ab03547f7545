#include "trireme/tensor/random_scope.h"

namespace trireme {
namespace {

thread_local const RandomContext* innermost = nullptr;

}  // namespace

RandomScope::RandomScope(const RandomContext& context) : context_(context), outer_(innermost) { innermost = &context_; }
RandomScope::~RandomScope() { innermost = outer_; }
const RandomContext* RandomScope::current() { return innermost; }

}  // namespace trireme
