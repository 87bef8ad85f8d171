"""Find the recurrent layers of a profile, and how each layer runs.

::

    profiles    find the layers in the events; one file per framework or way of running a layer
    cells       recognise an LSTM or GRU cell by the matmuls and activations of one time step
    network     derive layers and directions from the sizes of the cells
    call        join cells to calls of a layer, and measure the time of each call
"""
