// SPDX-License-Identifier: BSD-3-Clause
// device.cpp - see device.h. Next: work.cpp.
#include "device.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

namespace tutti_torch
{

namespace
{

using Guard = c10::impl::DeviceGuardImplInterface;

// Newer torch tells.
template <class G>
auto is_capturing(const G &guard, const c10::Stream &stream, int)
    -> decltype(guard.isStreamCapturing(stream))
{
    return guard.isStreamCapturing(stream);
}
template <class G> bool is_capturing(const G &, const c10::Stream &, long)
{
    return false;
}

} // namespace

std::optional<at::Device> device_of(const char *what, const Tensors &list)
{
    std::optional<at::Device> found;
    for (const auto &t : list) {
        if (!t.defined() || (t.is_cpu() && t.numel() == 0))
            continue;
        if (!found)
            found = t.device();
        TORCH_CHECK(*found == t.device(), "ProcessGroupTutti::", what,
                    ": all tensors of a call must be on one device, these are "
                    "on ",
                    *found, " and ", t.device());
    }
    if (found && found->is_cpu())
        found.reset();
    return found;
}

c10::Stream current_stream(at::Device device)
{
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

c10::Stream spare_stream(at::Device device)
{
    return c10::impl::VirtualGuardImpl(device.type())
        .getStreamFromGlobalPool(device);
}

c10::Event mark(const char *what, const c10::Stream &stream)
{
    const Guard &guard = *c10::impl::getDeviceGuardImpl(stream.device_type());
    TORCH_CHECK(!is_capturing(guard, stream, 0), "tutti ", what,
                ": a call cannot be captured into a graph");
    c10::Event event(stream.device_type());
    event.record(stream);
    return event;
}

void block(const c10::Stream &stream, void *event)
{
    c10::impl::VirtualGuardImpl(stream.device_type()).block(event, stream);
}

void use_on(const c10::Stream &stream, const Tensors &list)
{
    const c10::impl::VirtualGuardImpl guard(stream.device_type());
    for (const auto &t : list)
        if (t.defined() && t.device() == stream.device() && t.has_storage())
            guard.recordDataPtrOnStream(t.storage().data_ptr(), stream);
}

void drain(const c10::Stream &stream)
{
    c10::impl::VirtualGuardImpl(stream.device_type()).synchronizeStream(stream);
}

} // namespace tutti_torch
