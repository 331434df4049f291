// The candidate host: the only process that loads a candidate.
#pragma once

namespace ak::device::cpu {

/// Serve requests on descriptors 3 to 6 (control.h) until killed. `arguments`: "--host", private memory in bytes, bytes of arena to map,
/// workers, path of the module or "none".
int host_main(int count, char** arguments);

}  // namespace ak::device::cpu
