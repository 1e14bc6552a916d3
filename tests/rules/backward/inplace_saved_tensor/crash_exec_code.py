import torch

program = '''
x = torch.ones(3, requires_grad=True)
h = x * 2
y = h.exp()
y += 1
y.sum().backward()
'''
exec(compile(program, "generated", "exec"))
