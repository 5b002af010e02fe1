// SPDX-License-Identifier: BSD-3-Clause
// device.h - tensors in the memory of a GPU: which one, and its streams and events.
//
// All by c10's interface to devices, which a torch without CUDA has as well. No
// header of CUDA is read and no library of it is linked: where there are such
// tensors, torch has loaded what it takes. An event of c10 is a cudaEvent_t,
// which is the CUevent of tutti.h.
#pragma once

#include <optional>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "tensors.h"

namespace tutti_torch
{

// The GPU that the tensors are on; none: the CPU. Throws when they are on
// several devices. Undefined ones, and empty ones on the CPU, are anywhere.
std::optional<at::Device> device_of(const char *what, const Tensors &list);

c10::Stream current_stream(at::Device device);
// One of torch's own that nobody else is likely to use now.
c10::Stream spare_stream(at::Device device);

// What the stream was given by now. Throws where it is being captured into a
// graph, because what other ranks do cannot be.
c10::Event mark(const char *what, const c10::Stream &stream);
// The stream goes on when the event of tutti has happened.
void block(const c10::Stream &stream, void *event);
// The tensors' memory is not given to others before the stream is done with
// what it was given by now.
void use_on(const c10::Stream &stream, const Tensors &list);
// The caller waits for all that the stream was given.
void drain(const c10::Stream &stream);

} // namespace tutti_torch
