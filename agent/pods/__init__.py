"""The pods of this node: followed, admitted, and each brought to what it asks for by a worker of its own."""
