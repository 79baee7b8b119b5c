"""Two processes on the CPU (gloo): FSDP2 and expert parallelism around converted modules give what one process gives."""
import copy
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.nn import functional as F

import families
import octet

WORLD = 2


def _start(rank, port, all_done, function, *args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(WORLD))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    function(rank, *args)
    # Torch's own threads may abort in a process that ends while the other still talks to it, or takes them down: both
    # wait for each other outside of torch, and leave without taking anything down. A failure has been raised by now.
    dist.barrier()
    all_done.wait(timeout=120)
    os._exit(0)


def spawn(function, *args):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    all_done = multiprocessing.get_context("spawn").Barrier(WORLD)
    multiprocessing.spawn(_start, args=(port, all_done, function, *args), nprocs=WORLD)


def _model():
    torch.manual_seed(3)
    return families.Model(families.BLOCKS["torchtitan"]())


def _step(model, optimizer, tokens, labels):
    loss = F.cross_entropy(model(tokens).float(), labels, reduction="sum")
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def _fsdp(rank, cache_weights):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (WORLD,))  # where there is a GPU too
    single = octet.convert(_model(), "fp8_rowwise")
    sharded = octet.convert(_model(), "fp8_rowwise", cache_weights=cache_weights)
    fully_shard(sharded.block.experts, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    # SGD: it is linear in the gradient, so that a gradient that is off is seen.
    optimizers = [torch.optim.SGD(model.parameters(), lr=1e-4) for model in (single, sharded)]
    for step in range(3):
        tokens, labels = families.batch(step, 64)
        # One scale serves a group's whole column: half of a batch has other scales than the whole. So both ranks take the
        # whole batch, and the mean of their gradients is one process's.
        ours = _step(sharded, optimizers[1], tokens, labels)
        theirs = _step(single, optimizers[0], tokens, labels)
        assert ours == theirs or abs(ours - theirs) <= 1e-4 * abs(theirs), (step, ours, theirs)
    for (name, a), b in zip(sharded.named_parameters(), single.parameters()):
        torch.testing.assert_close(a.full_tensor(), b, rtol=1e-4, atol=1e-5, msg=name)


def test_fsdp2():
    spawn(_fsdp, False)


def test_fsdp2_with_cached_weights():
    spawn(_fsdp, True)


def _dispatch(module, args):
    """Rows that lie in the order of all the experts -> the rows of this rank's experts, in their order."""
    from torch.distributed._functional_collectives import all_to_all_single_autograd

    x, counts = args
    local = counts.numel() // WORLD
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts)
    sent, received = (c.view(WORLD, -1).sum(1).tolist() for c in (counts, arriving))
    x = all_to_all_single_autograd(x, received, sent, dist.group.WORLD)
    # They came by rank and then by expert; experts want them by expert.
    expert = torch.arange(local).repeat(WORLD).repeat_interleave(arriving)
    order = expert.argsort(stable=True)
    module.sent, module.received, module.order = sent, received, order
    return x[order], arriving.view(WORLD, local).sum(0)


def _combine(module, args, y):
    from torch.distributed._functional_collectives import all_to_all_single_autograd

    back = torch.empty_like(module.order)
    back[module.order] = torch.arange(back.numel())
    return all_to_all_single_autograd(y[back], module.sent, module.received, dist.group.WORLD)


def _expert_parallel(rank, recipe):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (WORLD,))
    single = octet.convert(_model(), recipe)
    model = octet.convert(copy.deepcopy(_model()), recipe)
    experts = model.block.experts
    for name, weight in list(experts.named_parameters()):
        experts.register_parameter(name, torch.nn.Parameter(distribute_tensor(weight.detach(), mesh, [Shard(0)])))
    experts.register_forward_pre_hook(_dispatch)
    experts.register_forward_hook(_combine)
    batches = [families.batch(step, 48 + 16 * step) for step in range(WORLD)]
    y = model(batches[rank][0])
    F.cross_entropy(y.float(), batches[rank][1], reduction="sum").backward()
    # One process over both ranks' tokens, in the order in which they reach the experts.
    z = single(torch.cat([tokens for tokens, _ in batches]))
    F.cross_entropy(z.float(), torch.cat([labels for _, labels in batches]), reduction="sum").backward()
    mine = slice(0, batches[0][0].numel()) if rank == 0 else slice(batches[0][0].numel(), None)
    torch.testing.assert_close(y, z[mine], rtol=1e-5, atol=1e-5)
    for name, weight in experts.named_parameters():
        gradient = getattr(single.block.experts, name).grad.chunk(WORLD)[rank]
        torch.testing.assert_close(weight.grad.to_local(), gradient, rtol=1e-2, atol=1e-3, msg=name)


def test_expert_parallel():
    spawn(_expert_parallel, "fp8_rowwise")
